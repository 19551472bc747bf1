//! Sensors that belong together: what a person names to have watched.

use crate::catalog::{Role, SENSORS, Sensor};

/// Names of groups.
pub const GROUPS: &[&str] = &["http", "http-client", "grpc", "grpc-client", "sql"];

/// The group that a role is of.
pub fn group_of(role: Role) -> &'static str {
    match role {
        Role::ServerRequest
        | Role::ServerRun
        | Role::ServerHeader
        | Role::ServerFinish
        | Role::Route
        | Role::Hijack => "http",
        Role::ClientRequest => "http-client",
        Role::RpcServer | Role::RpcStatus => "grpc",
        Role::RpcClient | Role::RpcStream | Role::RpcStreamMade | Role::RpcStreamEnd => {
            "grpc-client"
        }
        Role::Database(_) | Role::Row | Role::RowsEnd => "sql",
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
        let found = |name: &str| SENSORS.iter().any(|sensor| group_of(sensor.role) == name);
        assert!(GROUPS.iter().all(|name| found(name)));
        assert!(SENSORS.iter().all(|sensor| GROUPS.contains(&group_of(sensor.role))));
        let of = |function: &str| sensor_of(function).map(|sensor| group_of(sensor.role));
        assert_eq!(of("net/http.serverHandler.ServeHTTP"), Some("http"));
        assert!(sensor_of("main.main").is_none());
    }
}
