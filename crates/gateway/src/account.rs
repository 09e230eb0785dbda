//! The account: what a client asks first.

use http::StatusCode;
use serde_json::json;

use crate::reply::{Answer, Reply};
use crate::request::Request;
use crate::state::State;

/// The only region. Clients know regions by name, and the emulators use this one.
const REGION: &str = "South Central US";

/// Limits of queries, which clients of .NET and Java hand to their own planner.
const QUERY_ENGINE: &str = concat!(
    r#"{"maxSqlQueryInputLength":262144,"maxJoinsPerSqlQuery":5,"#,
    r#""maxLogicalAndPerSqlQuery":500,"maxLogicalOrPerSqlQuery":500,"#,
    r#""maxUdfRefPerSqlQuery":10,"maxInExpressionItemsCount":16000,"#,
    r#""queryMaxInMemorySortDocumentCount":500,"maxQueryRequestTimeoutFraction":0.9,"#,
    r#""sqlAllowNonFiniteNumbers":false,"sqlAllowAggregateFunctions":true,"#,
    r#""sqlAllowSubQuery":true,"sqlAllowScalarSubQuery":true,"allowNewKeywords":true,"#,
    r#""sqlAllowLike":true,"sqlAllowGroupByClause":true,"maxSpatialQueryCells":12,"#,
    r#""spatialMaxGeometryPointCount":256,"sqlDisableQueryILOptimization":false,"#,
    r#""sqlDisableFilterPlanOptimization":false}"#,
);

/// `GET /`. The addresses in it are those the client used, whatever stands between it and us.
pub(crate) fn read(state: &State, request: &Request) -> Answer {
    let account = &state.options.account;
    let location =
        json!([{ "name": REGION, "databaseAccountEndpoint": format!("{}/", request.base) }]);
    let replication =
        json!({ "asyncReplication": false, "minReplicaSetSize": 1, "maxReplicasetSize": 4 });
    let body = json!({
        "_self": "",
        "id": account,
        "_rid": account,
        "media": "//media/",
        "addresses": "//addresses/",
        "_dbs": "//dbs/",
        "writableLocations": location,
        "readableLocations": location,
        "enableMultipleWriteLocations": false,
        "continuousBackupEnabled": false,
        "enableNRegionSynchronousCommit": false,
        "userReplicationPolicy": replication,
        "systemReplicationPolicy": replication,
        "userConsistencyPolicy": { "defaultConsistencyLevel": "Session" },
        "readPolicy": { "primaryReadCoefficient": 1, "secondaryReadCoefficient": 1 },
        "queryEngineConfiguration": QUERY_ENGINE,
    });
    Reply::json(StatusCode::OK, &body)
}
