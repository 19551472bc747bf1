//! Sensors that belong together: what a person names to have watched.

use crate::catalog::{Role, SENSORS, Sensor};

/// Names of groups.
pub const GROUPS: &[&str] = &["http", "http-client", "grpc", "grpc-client", "sql"];

/// The group that a role is of; `None` for what is watched for the sake of all.
pub fn group_of(role: Role) -> Option<&'static str> {
    match role {
        Role::ServerRequest
        | Role::ServerHeader
        | Role::ServerFinish
        | Role::Route
        | Role::Hijack => Some("http"),
        Role::ClientRequest => Some("http-client"),
        Role::RpcServer | Role::RpcStatus => Some("grpc"),
        Role::RpcClient | Role::RpcStream | Role::RpcStreamMade | Role::RpcStreamEnd => {
            Some("grpc-client")
        }
        Role::Database(_) => Some("sql"),
        _ => None,
    }
}

/// The sensor that watches `function`.
pub fn sensor_of(function: &str) -> Option<&'static Sensor> {
    SENSORS.iter().find(|sensor| sensor.function == function)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_named_and_each_has_sensors() {
        let found = |name: &str| SENSORS.iter().any(|sensor| group_of(sensor.role) == Some(name));
        assert!(GROUPS.iter().all(|name| found(name)));
        let named = |role| group_of(role).is_none_or(|name| GROUPS.contains(&name));
        assert!(SENSORS.iter().all(|sensor| named(sensor.role)));
        assert_eq!(sensor_of("runtime.gopanic").map(|it| group_of(it.role)), Some(None));
        assert!(sensor_of("main.main").is_none());
    }
}
