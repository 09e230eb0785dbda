//! Offers: the throughput of databases and containers. Raising it splits ranges.

use http::StatusCode;
use millstream_core::{
    ContainerInfo, ContainerName, ContainerSettings, DatabaseInfo, ErrorKind, Etag,
};
use serde_json::{Value, json};

use crate::catalog::{Entry, Owner, Throughput};
use crate::listing::Listed;
use crate::listing_place::Names;
use crate::refusal::Refusal;
use crate::reply::{Answer, Reply, quoted};
use crate::request::Request;
use crate::rid::{self, Rid};
use crate::state::{State, THROUGHPUT_DEFAULT};
use crate::{headers, listing, listing_query};

/// What feeds call the offers in them.
const NAME: &str = "Offers";
/// Request units a second for which a new container gets a range each.
const UNITS_PER_RANGE: u32 = 6_000;
/// The most that a range serves; a container that is to have more is split.
const UNITS_PER_RANGE_MAX: u32 = 10_000;
/// Most splits that raising the throughput tries: as many as it may need, and as many more that
/// others do before.
const SPLITS_MAX: u32 = 2 * UNITS_MAX / UNITS_PER_RANGE_MAX;
/// Bounds of provisioned throughput.
const UNITS_MIN: u32 = 400;
const AUTOSCALE_MIN: u32 = 1_000;
const UNITS_MAX: u32 = 1_000_000;
/// The first byte of the id of an offer, which says whose it is.
const OF_DATABASE: u8 = 1;
const OF_CONTAINER: u8 = 2;

const _: () = assert!(UNITS_MAX / UNITS_PER_RANGE < ContainerSettings::RANGES_MAX);

/// An offer and whose it is.
struct Offer {
    owner: Owner,
    /// Names of the database and, if it is a container, of that.
    names: Names,
    /// The container, if it is one.
    name: Option<ContainerName>,
    /// Resource id and link of what it belongs to.
    rid: String,
    link: String,
    throughput: Throughput,
    modified_seconds: u64,
}

/// The number of ranges that a new container with so much throughput gets.
pub(crate) fn ranges(units: u32) -> u32 {
    units.div_ceil(UNITS_PER_RANGE).max(1)
}

/// The throughput that a request for a new database or container asks for.
pub(crate) fn requested(request: &Request) -> Result<Option<Throughput>, Refusal> {
    let manual: Option<u32> = request.number(&headers::OFFER_THROUGHPUT)?;
    let autoscale = match request.text(&headers::AUTOPILOT_SETTINGS)? {
        Some(text) => Some(autoscale(&listing::object(text.as_bytes())?.into())?),
        None => None,
    };
    match (manual, autoscale) {
        (None, None) => Ok(None),
        (Some(units), None) => checked(Throughput::Manual(units)).map(Some),
        (None, Some(throughput)) => checked(throughput).map(Some),
        (Some(_), Some(_)) => {
            Err(Refusal::bad_request("throughput is either manual or autoscale, not both"))
        }
    }
}

pub(crate) async fn list(state: &State, request: &Request) -> Answer {
    let offers = all(state).await?;
    listing::page(request, NAME, "", offers.iter().map(listed).collect())
}

pub(crate) async fn query(state: &State, request: &Request) -> Answer {
    let offers = all(state).await?;
    let offers = offers.iter().map(listed).collect();
    listing_query::answer(state, request, NAME, "", offers)
}

pub(crate) async fn read(state: &State, id: &str) -> Answer {
    reply(&find(state, id).await?)
}

pub(crate) async fn replace(state: &State, request: &Request, id: &str) -> Answer {
    let mut offer = find(state, id).await?;
    let if_match = request.if_match()?;
    let check = |offer: &Offer| {
        if if_match.as_ref().is_none_or(|it| *it == etag(offer)) {
            return Ok(());
        }
        let message = "the etag of the request is not that of the offer";
        Err(Refusal::new(StatusCode::PRECONDITION_FAILED, message))
    };
    check(&offer)?;
    let body = listing::object(&request.body)?;
    let content = body.get("content").unwrap_or(&Value::Null);
    let scale = content.get("offerAutopilotSettings").filter(|it| !it.is_null());
    let throughput = checked(match scale {
        Some(settings) => autoscale(settings)?,
        None => {
            let units = content.get("offerThroughput").and_then(Value::as_u64);
            let units = units.and_then(|it| u32::try_from(it).ok());
            let message = "the offer needs content.offerThroughput, a number";
            Throughput::Manual(units.ok_or_else(|| Refusal::bad_request(message))?)
        }
    })?;
    let owner = offer.owner;
    let replace = |entry: &mut Entry| {
        // Another client may have been faster.
        offer.throughput = entry.throughput.unwrap_or(offer.throughput);
        check(&offer)?;
        entry.throughput = Some(throughput);
        Ok(())
    };
    state.catalog.change(owner, replace).await?;
    offer.throughput = throughput;
    // It is stored, whatever becomes of the ranges.
    state.set_throughput(owner, offer.throughput.most());
    if let Some(name) = &offer.name {
        grow(state, name, offer.throughput.most().div_ceil(UNITS_PER_RANGE_MAX)).await?;
    }
    reply(&offer)
}

/// Splits the widest range until there are as many as are wanted, where ranges can be split.
async fn grow(state: &State, name: &ContainerName, wanted: u32) -> Result<(), Refusal> {
    if !state.containers.capabilities().split {
        return Ok(());
    }
    let container = state.containers.open(name).await?;
    let known = state.known_ranges(container.info.resource_id);
    for _ in 0..SPLITS_MAX {
        let ranges = known.refresh(&*container.feed).await?;
        if u32::try_from(ranges.len()).is_ok_and(|it| wanted <= it) {
            return Ok(());
        }
        // A range that came from fewer splits is wider; of those, the first.
        let infos = ranges.iter().map(|it| &it.info);
        let widest = infos.min_by_key(|it| (it.parents.len(), it.id));
        let Some(widest) = widest else { return Ok(()) };
        match state.containers.split(name, widest.id, None).await {
            // Somebody else was faster; the ranges will tell.
            Err(error) if error.kind() == ErrorKind::NotFound => (),
            split => drop(split?),
        }
    }
    known.refresh(&*container.feed).await.map(drop)
}

fn reply(offer: &Offer) -> Answer {
    let min = match offer.throughput {
        Throughput::Manual(_) => UNITS_MIN,
        Throughput::Autoscale(_) | Throughput::Growing { .. } => AUTOSCALE_MIN,
    };
    Ok(Reply::json(StatusCode::OK, &render(offer))?
        .etag(&etag(offer))
        .header(&headers::OFFER_REPLACE_PENDING, "false")
        .header(&headers::MIN_THROUGHPUT, &min.to_string()))
}

fn listed(offer: &Offer) -> Listed {
    Listed { names: offer.names.clone(), resource: render(offer) }
}

fn render(offer: &Offer) -> Value {
    let id = offer_id(offer.owner);
    let content = match offer.throughput {
        Throughput::Manual(units) => json!({
            "offerThroughput": units,
            "offerIsRUPerMinuteThroughputEnabled": false,
            "isOfferReplacePending": false,
        }),
        Throughput::Autoscale(units) => scaled(units, &json!({ "maxThroughput": units })),
        Throughput::Growing { most, increment_percent } => {
            let policy = json!({ "throughputPolicy": { "incrementPercent": increment_percent } });
            scaled(most, &json!({ "maxThroughput": most, "autoUpgradePolicy": policy }))
        }
    };
    json!({
        "resource": offer.link,
        "offerType": "Invalid",
        "offerResourceId": offer.rid,
        "offerVersion": "V2",
        "content": content,
        "id": id,
        "_rid": id,
        "_self": format!("offers/{id}/"),
        "_etag": quoted(&etag(offer)),
        "_ts": offer.modified_seconds,
    })
}

/// The content of an offer of autoscale, which serves a tenth of the most while nobody asks.
fn scaled(most: u32, settings: &Value) -> Value {
    json!({
        "offerThroughput": most / 10,
        "offerIsRUPerMinuteThroughputEnabled": false,
        "offerAutopilotSettings": settings,
        "isOfferReplacePending": false,
    })
}

/// Follows from what the offer says.
fn etag(offer: &Offer) -> Etag {
    let kind = match offer.throughput {
        Throughput::Manual(_) => "manual".to_owned(),
        Throughput::Autoscale(_) => "autoscale".to_owned(),
        Throughput::Growing { increment_percent, .. } => format!("autoscale-{increment_percent}"),
    };
    Etag::new(format!("{}-{kind}-{}", offer_id(offer.owner), offer.throughput.most()))
}

fn offer_id(owner: Owner) -> String {
    let (kind, number) = match owner {
        Owner::Database(number) => (OF_DATABASE, number),
        Owner::Container(id) => (OF_CONTAINER, id.container),
    };
    use base64::Engine;
    let [_, rest @ ..] = number.to_be_bytes();
    rid::base64().encode([&[kind], &rest[..]].concat())
}

async fn find(state: &State, id: &str) -> Result<Offer, Refusal> {
    let mut offers = all(state).await?.into_iter();
    offers.find(|it| offer_id(it.owner) == id).ok_or_else(|| {
        let shown: String = id.chars().take(64).collect();
        Refusal::not_found(format!("there is no offer {shown:?}"))
    })
}

/// All offers: those of databases whose containers share their throughput, and those of
/// containers that do not.
async fn all(state: &State) -> Result<Vec<Offer>, Refusal> {
    let mut offers = Vec::new();
    for database in state.databases().await? {
        let Some(containers) = state.containers_in(&database).await? else { continue };
        let owner = Owner::Database(database.resource_id);
        let shared = state.catalog.read(owner).await?.throughput;
        offers.extend(shared.map(|throughput| of_database(&database, throughput)));
        for container in containers {
            let owner = Owner::Container(container.resource_id);
            let own = state.catalog.read(owner).await?.throughput;
            let own = match (own, shared) {
                (None, None) => Some(Throughput::Manual(THROUGHPUT_DEFAULT)),
                (own, _) => own,
            };
            offers.extend(own.map(|throughput| of_container(&container, throughput)));
        }
    }
    Ok(offers)
}

fn of_database(info: &DatabaseInfo, throughput: Throughput) -> Offer {
    let rid = Rid::Database(info.resource_id).encode();
    Offer {
        owner: Owner::Database(info.resource_id),
        names: vec![info.name.clone()],
        name: None,
        link: format!("dbs/{rid}/"),
        rid,
        throughput,
        modified_seconds: info.created_at.as_millis() / 1000,
    }
}

fn of_container(info: &ContainerInfo, throughput: Throughput) -> Offer {
    let rid = Rid::Container(info.resource_id).encode();
    let database = Rid::Database(info.resource_id.database).encode();
    Offer {
        owner: Owner::Container(info.resource_id),
        names: vec![info.name.database().to_owned(), info.name.container().to_owned()],
        name: Some(info.name.clone()),
        link: format!("dbs/{database}/colls/{rid}/"),
        rid,
        throughput,
        modified_seconds: info.modified_at.as_millis() / 1000,
    }
}

fn autoscale(settings: &Value) -> Result<Throughput, Refusal> {
    let number = |value: &Value| value.as_u64().and_then(|it| u32::try_from(it).ok());
    let most = settings.get("maxThroughput");
    if let Some(units) = most.and_then(Value::as_i64).filter(|it| *it < AUTOSCALE_MIN.into()) {
        return Err(too_little(units, AUTOSCALE_MIN));
    }
    let refused = || Refusal::bad_request("autoscale needs a maxThroughput, a number");
    let most = most.and_then(number).ok_or_else(refused)?;
    let increment = settings.pointer("/autoUpgradePolicy/throughputPolicy/incrementPercent");
    match increment.filter(|it| !it.is_null()).map(number) {
        None => Ok(Throughput::Autoscale(most)),
        Some(Some(increment_percent)) => Ok(Throughput::Growing { most, increment_percent }),
        Some(None) => Err(Refusal::bad_request("the incrementPercent of autoscale is no number")),
    }
}

fn checked(throughput: Throughput) -> Result<Throughput, Refusal> {
    let (min, step) = match throughput {
        Throughput::Manual(_) => (UNITS_MIN, 100),
        Throughput::Autoscale(_) | Throughput::Growing { .. } => (AUTOSCALE_MIN, 1_000),
    };
    let units = throughput.most();
    if units < min {
        return Err(too_little(units.into(), min));
    }
    if (min..=UNITS_MAX).contains(&units) && units.is_multiple_of(step) {
        return Ok(throughput);
    }
    Err(Refusal::bad_request(format!(
        "the throughput {units} is invalid: it has to be between {min} and {UNITS_MAX} in steps of \
         {step}"
    )))
}

fn too_little(units: i64, min: u32) -> Refusal {
    let message =
        format!("Requested throughput {units} is less than required minimum throughput {min}");
    Refusal::bad_request(message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn autoscale_keeps_what_it_was_given() {
        let check = |settings: Value, expected: Throughput| {
            assert_eq!(autoscale(&settings).unwrap(), expected, "{settings}");
        };
        check(json!({ "maxThroughput": 4000 }), Throughput::Autoscale(4000));
        for increment_percent in [0, 7] {
            let policy = json!({ "throughputPolicy": { "incrementPercent": increment_percent } });
            let settings = json!({ "maxThroughput": 5000, "autoUpgradePolicy": policy });
            check(settings, Throughput::Growing { most: 5000, increment_percent });
        }
        for settings in [json!({}), json!({ "maxThroughput": "4000" })] {
            assert!(autoscale(&settings).unwrap_err().message.contains("needs"), "{settings}");
        }
        let refused = autoscale(&json!({ "maxThroughput": -200 })).unwrap_err();
        assert!(refused.message.contains("-200 is less than required minimum throughput 1000"));
    }

    #[test]
    fn more_throughput_needs_more_ranges() {
        for (units, expected) in [(400, 1), (6_000, 1), (11_000, 2), (12_000, 2), (30_000, 5)] {
            assert_eq!(ranges(units), expected, "{units}");
        }
    }

    #[test]
    fn throughput_has_bounds_and_steps() {
        for units in [0, 399, 450, UNITS_MAX + 100] {
            assert!(checked(Throughput::Manual(units)).is_err(), "{units}");
        }
        assert!(checked(Throughput::Autoscale(400)).is_err());
        assert!(checked(Throughput::Autoscale(4_000)).is_ok());
    }
}
