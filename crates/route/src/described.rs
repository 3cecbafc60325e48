//! What a node looks for in the description of another one.

use serde::Deserialize;

use crate::message::{METHOD, SERVICE};

#[derive(Deserialize)]
struct Description {
    #[serde(default)]
    services: Vec<Service>,
}

#[derive(Deserialize)]
struct Service {
    name: String,
    #[serde(default)]
    methods: Vec<Method>,
}

#[derive(Deserialize)]
struct Method {
    name: String,
}

/// The number of the method that takes messages. `None` if the server that describes itself so is no node.
pub(crate) fn deliver_in(description: &str) -> Option<u16> {
    let described: Description = serde_json::from_str(description).ok()?;
    let mut before = 0usize;
    for service in described.services {
        if service.name == SERVICE {
            let place = service.methods.iter().position(|method| method.name == METHOD)?;
            return u16::try_from(before + place).ok();
        }
        before += service.methods.len();
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_method_is_found_by_its_place() {
        let other = r#"{"name": "Other", "methods": [{"name": "deliver"}, {"name": "b"}]}"#;
        let route = r#"{"name": "nearcall.Route", "methods": [{"name": "status"}, {"name": "deliver"}]}"#;
        assert_eq!(deliver_in(&format!(r#"{{"nearcall": 1, "services": [{other}, {route}]}}"#)), Some(3));
        for none in ["", "7", "{}", &format!(r#"{{"services": [{other}]}}"#)] {
            assert_eq!(deliver_in(none), None);
        }
    }
}
