/// The OpenAPI 3.1 document of the REST interface.
pub const OPENAPI: &str = include_str!("openapi.json");

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::Value;

    use crate::OPENAPI;
    use crate::http::routes;

    const METHODS: &[&str] = &["get", "put", "post", "delete", "patch", "head", "options"];

    fn document() -> Value {
        serde_json::from_str(OPENAPI).expect("the document is JSON")
    }

    #[test]
    fn every_route_is_in_the_document_and_every_path_is_a_route() {
        let document = document();
        let paths = document["paths"].as_object().unwrap();
        let documented: BTreeSet<(String, String)> = paths
            .iter()
            .flat_map(|(path, methods)| {
                let methods = methods.as_object().unwrap().keys();
                let methods = methods.filter(|it| METHODS.contains(&it.as_str()));
                methods.map(|it| (it.clone(), path.clone()))
            })
            .collect();
        let routed: BTreeSet<(String, String)> =
            routes().into_iter().map(|(it, path, _)| (it.to_owned(), path.to_owned())).collect();
        assert_eq!(documented, routed);
        assert_eq!(document["openapi"], "3.1.0");
    }

    #[test]
    fn every_reference_leads_somewhere() {
        fn look(document: &Value, value: &Value) {
            if let Some(reference) = value.get("$ref") {
                let pointer = reference.as_str().unwrap().trim_start_matches('#');
                assert!(document.pointer(pointer).is_some(), "{reference}");
            }
            match value {
                Value::Object(members) => members.values().for_each(|it| look(document, it)),
                Value::Array(items) => items.iter().for_each(|it| look(document, it)),
                Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => (),
            }
        }
        let document = document();
        look(&document, &document);
    }

    #[test]
    fn every_parameter_of_a_path_is_described() {
        let document = document();
        for (path, item) in document["paths"].as_object().unwrap() {
            let parameters = item["parameters"].as_array();
            let is_described = parameters.is_some_and(|it| !it.is_empty());
            assert_eq!(path.contains('{'), is_described, "{path}");
        }
    }
}
