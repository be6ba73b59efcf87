//! The routes, with a description (OpenAPI), and the handlers by subject.

pub(crate) mod attempts;
pub(crate) mod batches;
mod bulk;
pub(crate) mod cluster;
pub(crate) mod connections;
pub(crate) mod control;
pub(crate) mod dead;
pub(crate) mod detail;
pub(crate) mod ended;
mod events;
mod export;
pub(crate) mod filter;
pub(crate) mod history;
pub(crate) mod jobs;
pub(crate) mod kinds;
mod leases;
pub(crate) mod listing;
mod metrics;
pub(crate) mod namespaces;
mod pace;
pub(crate) mod policies;
pub(crate) mod push;
pub(crate) mod queues;
pub(crate) mod schedules;
pub(crate) mod search;
pub(crate) mod status;
mod take;
pub(crate) mod throttles;
pub(crate) mod trace;
pub(crate) mod views;
mod wait;
mod words;
pub(crate) mod workers;

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::http::StatusCode;
use utoipa::openapi::path::{Parameter, ParameterBuilder, ParameterIn};
use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityRequirement, SecurityScheme};
use utoipa::openapi::{Content, Ref, RefOr, Required, ResponseBuilder};
use utoipa::{OpenApi, PartialSchema as _};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::access::{demand, demand_and_record, of_role, of_whole};
use crate::app::App;
use crate::guard::OPEN;
use crate::login::Role;
use crate::namespace::PARAMETER;

#[derive(OpenApi)]
#[openapi(
    components(schemas(events::JobEvent, events::QueueEvent, events::WorkerEvent, events::MissedEvent)),
    info(
        title = "Windlass",
        description = "Ask and operate the queue; push and take jobs without a client library. A 2xx answer to a change means \
                       that the change is on the disk (with durability = \"sync\"). Names are text; a name that is not UTF-8, or \
                       begins with `base64:`, is written as `base64:` and its bytes in URL-safe base64.",
        license(name = "MIT OR Apache-2.0", identifier = "MIT OR Apache-2.0")
    ),
    tags(
        (name = "status", description = "The daemon as a whole"),
        (name = "queues", description = "Queues of all protocols"),
        (name = "namespaces", description = "Parts of the daemon whose clients see nothing of each other"),
        (name = "jobs", description = "Jobs of all protocols and states"),
        (name = "workers", description = "Workers known by name"),
        (name = "schedules", description = "Jobs that are pushed again and again"),
        (name = "batches", description = "Jobs that belong together"),
        (name = "connections", description = "Connections of all protocols"),
        (name = "work", description = "Push, take and finish jobs without a client library")
    )
)]
struct Description;

pub(crate) fn routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::with_openapi(Description::openapi())
        .routes(routes!(status::livez))
        .routes(routes!(status::readyz))
        .routes(routes!(namespaces::list))
        .merge(of_role(reading(), Role::Read, demand))
        .merge(of_role(of_whole(overseeing()), Role::Read, demand))
        .merge(of_role(working(), Role::Operate, demand))
        .merge(of_role(operating(), Role::Operate, demand_and_record))
        .merge(of_role(administering(), Role::Admin, demand_and_record))
        .merge(of_role(
            of_whole(governing()),
            Role::Admin,
            demand_and_record,
        ))
}

/// Handlers by module.
macro_rules! handlers {
    ($($subject:ident: $($handler:ident),+;)+) => {
        OpenApiRouter::new()$($(.routes(routes!($subject::$handler)))+)+
    };
}

/// Shows.
fn reading() -> OpenApiRouter<Arc<App>> {
    handlers! {
        ended: list, get, hours, kinds;
        status: status;
        queues: list, get;
        policies: get, get_policy;
        throttles: list;
        jobs: list, get, body;
        bulk: count;
        dead: groups;
        kinds: list;
        search: search;
        events: events;
        workers: list;
        schedules: list;
        batches: list, get;
        connections: list;
    }
}

/// Shows what belongs to no namespace.
fn overseeing() -> OpenApiRouter<Arc<App>> {
    handlers! {
        history: history;
        metrics: metrics;
        cluster: show;
    }
}

/// Routes for producers and workers.
fn working() -> OpenApiRouter<Arc<App>> {
    handlers! {
        wait: wait;
        push: push;
        take: take;
        leases: done, fail, extend;
    }
}

/// Routes that modify state without losing data.
fn operating() -> OpenApiRouter<Arc<App>> {
    handlers! {
        ended: again;
        queues: pause, resume, throttle, unthrottle, limit, unlimit;
        policies: set_policy, unset_policy;
        jobs: retry, kill, requeue;
        bulk: retry, kill, requeue;
        schedules: run, pause, resume;
        workers: quiet, stop, quiet_all, stop_all;
        namespaces: pause, resume;
    }
}

/// Routes that lose data, or return the complete contents including all bodies.
fn administering() -> OpenApiRouter<Arc<App>> {
    handlers! {
        queues: clear, remove;
        jobs: delete, cancel;
        bulk: delete, cancel;
        schedules: remove;
        connections: close;
        export: export;
        namespaces: empty, move_queue;
    }
}

/// The same, for the whole daemon.
fn governing() -> OpenApiRouter<Arc<App>> {
    handlers! {
        control: drain, reload;
        cluster: yield_lead;
        namespaces: set, remove;
    }
}

/// The OpenAPI document, as JSON.
pub fn openapi() -> String {
    text(routes().into_openapi())
}

/// The parameters within a path. `id` is a number.
fn placed(path: &str) -> impl Iterator<Item = Parameter> {
    let names = path
        .split('/')
        .filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
    names.map(|name| {
        let (about, schema) = match name {
            "id" => ("Its number", u64::schema()),
            "lease" => ("The lease", String::schema()),
            "end" => ("`id` of a row of the history", String::schema()),
            _ => ("Its name", String::schema()),
        };
        let parameter = ParameterBuilder::new()
            .name(name)
            .parameter_in(ParameterIn::Path)
            .required(Required::True);
        parameter
            .description(Some(about))
            .schema(Some(schema))
            .build()
    })
}

/// Returns true for a path that can be about one namespace.
fn is_within(path: &str) -> bool {
    const WHOLE: [&str; 6] = [
        "/api/v1/cluster",
        "/api/v1/drain",
        "/api/v1/history",
        "/api/v1/namespaces/",
        "/api/v1/reload",
        "/metrics",
    ];
    !OPEN.contains(&path) && !WHOLE.iter().any(|whole| path.starts_with(whole))
}

/// The parameter that limits a request to one namespace.
fn namespace() -> Parameter {
    let about = "Only this namespace, in which names are looked up; empty for the one without a name. All that the login \
                 sees, if it is left out";
    let parameter = ParameterBuilder::new()
        .name(PARAMETER)
        .parameter_in(ParameterIn::Query)
        .required(Required::False);
    parameter
        .description(Some(about))
        .schema(Some(String::schema()))
        .build()
}

/// The text of the document. Each response must have a description; a missing one is filled with the name of
/// the status. On every path except probes, the server may be out of connections, the engine may not reply in
/// time, and a login may be required.
pub(crate) fn text(mut document: utoipa::openapi::OpenApi) -> String {
    let problem = Content::new(Some(Ref::from_schema_name("Problem")));
    let refusal = |about: &str| {
        ResponseBuilder::new()
            .content("application/json", problem.clone())
            .description(about)
    };
    let late = RefOr::T(refusal("").build());
    let stranger = RefOr::T(refusal("There are logins, and the request has none of them").build());
    let schemes = document.components.get_or_insert_default();
    let scheme = |kind| SecurityScheme::Http(Http::new(kind));
    schemes.add_security_scheme("token", scheme(HttpAuthScheme::Bearer));
    schemes.add_security_scheme("password", scheme(HttpAuthScheme::Basic));
    // Without logins (`http.logins`) no authentication is required.
    let none = SecurityRequirement::default();
    let either = ["token", "password"].map(|name| SecurityRequirement::new(name, [""; 0]));
    document.security = Some([none].into_iter().chain(either).collect());
    let examples: BTreeMap<String, serde_json::Value> =
        serde_json::from_str(include_str!("../../examples.json")).unwrap_or_default();
    for (name, path) in &mut document.paths.paths {
        let methods = [
            ("GET", &mut path.get),
            ("PUT", &mut path.put),
            ("POST", &mut path.post),
        ];
        let methods = methods.into_iter().chain([("DELETE", &mut path.delete)]);
        for (method, operation) in
            methods.filter_map(|(method, operation)| Some((method, operation.as_mut()?)))
        {
            let mut parameters = operation.parameters.take().unwrap_or_default();
            parameters.splice(0..0, placed(name).map(RefOr::T));
            parameters.extend(is_within(name).then(|| RefOr::T(namespace())));
            operation.parameters = Some(parameters).filter(|it| !it.is_empty());
            let (answers, example) = (
                &mut operation.responses.responses,
                examples.get(&format!("{method} {name}")),
            );
            if !OPEN.contains(&&**name) {
                answers
                    .entry("503".to_owned())
                    .or_insert_with(|| late.clone());
                answers
                    .entry("401".to_owned())
                    .or_insert_with(|| stranger.clone());
            }
            for (status, response) in answers {
                let RefOr::T(response) = response else {
                    continue;
                };
                if status.starts_with('2') {
                    for content in response.content.values_mut() {
                        if let RefOr::T(content) = content {
                            content.example = example.cloned();
                        }
                    }
                }
                if response.description.is_empty() {
                    let reason = status
                        .parse()
                        .ok()
                        .and_then(|status: StatusCode| status.canonical_reason());
                    reason
                        .unwrap_or("An answer")
                        .clone_into(&mut response.description);
                }
            }
        }
    }
    document.to_pretty_json().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    /// `examples.json` contains responses of a daemon.
    #[test]
    fn examples_have_the_fields_of_their_schemas() {
        let document: serde_json::Value = serde_json::from_str(&openapi()).unwrap();
        let examples: BTreeMap<String, serde_json::Value> =
            serde_json::from_str(include_str!("../../examples.json")).unwrap();
        assert!(examples.len() >= 10);
        for (operation, example) in examples {
            let (method, path) = operation.split_once(' ').unwrap();
            let answers = document["paths"][path][method.to_lowercase()]["responses"]
                .as_object()
                .unwrap();
            let mut shown = answers
                .values()
                .map(|answer| &answer["content"]["application/json"]);
            let shown = shown.find(|content| content["example"] == example).unwrap();
            let name = shown["schema"]["$ref"]
                .as_str()
                .unwrap()
                .rsplit('/')
                .next()
                .unwrap();
            let schema = &document["components"]["schemas"][name];
            let parts: Vec<_> = schema["allOf"]
                .as_array()
                .cloned()
                .unwrap_or_else(|| vec![schema.clone()]);
            let resolved = parts.iter().map(|part| match part["$ref"].as_str() {
                Some(to) => &document["components"]["schemas"][to.rsplit('/').next().unwrap()],
                None => part,
            });
            let (mut fields, mut required) = (BTreeMap::new(), Vec::new());
            for part in resolved {
                fields.extend(part["properties"].as_object().unwrap());
                required.extend(
                    part["required"]
                        .as_array()
                        .into_iter()
                        .flatten()
                        .map(|it| it.as_str().unwrap()),
                );
            }
            let given = example.as_object().unwrap();
            for field in given.keys() {
                assert!(
                    fields.contains_key(field),
                    "{operation}: {name} has no {field}"
                );
            }
            for field in required {
                assert!(given.contains_key(field), "{operation}: {field} is missing");
            }
        }
    }

    /// `WINDLASS_TEST_OPENAPI=1` writes the document.
    #[test]
    fn the_document_describes_the_routes() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("openapi.json");
        let now = openapi() + "\n";
        if std::env::var_os("WINDLASS_TEST_OPENAPI").is_some() {
            std::fs::write(&path, &now).unwrap();
        }
        let kept = std::fs::read_to_string(&path).unwrap();
        assert!(
            kept == now,
            "openapi.json is not what the code says: WINDLASS_TEST_OPENAPI=1 writes it"
        );
    }
}
