//! Access: who asks is found before anything else; each group of routes demands a role; changes are recorded.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderValue, header};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use utoipa_axum::router::OpenApiRouter;

use crate::app::{App, Peer};
use crate::audit::{Affected, Line};
use crate::guard;
use crate::login::{Credentials, Identity, LOGIN_WRONG, Role};
use crate::problem::{Code, Outcome, Problem};
use crate::time::moment_text;

/// The one who asks, as the groups of routes see it: an extension of the request.
#[derive(Clone, Debug)]
pub(crate) struct Visitor {
    pub(crate) identity: Identity,
    address: Box<str>,
    app: Arc<App>,
}

/// Refuses requests of foreign pages and of strangers, and marks all answers.
pub(super) async fn admit(State(app): State<Arc<App>>, mut request: Request, next: Next) -> Response {
    app.counts.commands(1);
    let asked = asked(&app, &request);
    let mut response = match identified(&app, asked).await {
        Ok((identity, Peer { address, .. })) => {
            request.extensions_mut().insert(Visitor { identity, address, app: Arc::clone(&app) });
            next.run(request).await
        }
        Err(problem) => problem.into_response(),
    };
    if let Some(Code(code)) = response.extensions().get() {
        app.counts.refused(code);
        if *code == LOGIN_WRONG {
            app.counts.auth_failed();
        }
    }
    let headers = response.headers_mut();
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    response
}

async fn identified(app: &App, asked: Outcome<Asked>) -> Outcome<(Identity, Peer)> {
    let Asked { peer, credentials } = asked?;
    let identity = match (&app.logins, credentials) {
        _ if peer.is_owner => Identity::owner(),
        (Some(logins), Some(credentials)) => logins.identify(credentials?, peer.ip).await?,
        (Some(_), None) | (None, _) => Identity::anyone(),
    };
    Ok((identity, peer))
}

/// The part of a request that shows who asks.
struct Asked {
    peer: Peer,
    /// `None` if the path is open to everyone.
    credentials: Option<Outcome<Credentials>>,
}

fn asked(app: &App, request: &Request) -> Outcome<Asked> {
    let peer = request.extensions().get::<Peer>().cloned().ok_or_else(Problem::unexpected)?;
    guard::check((request.method(), request.uri(), request.headers()), &app.hosts, peer.ip.is_some())?;
    let is_open = guard::OPEN.contains(&request.uri().path());
    Ok(Asked { peer, credentials: (!is_open).then(|| Credentials::of(request.headers())) })
}

/// A group of routes that demands a role.
pub(super) fn of_role<F>(
    routes: OpenApiRouter<Arc<App>>,
    role: Role,
    demand: impl Fn(Role, Request, Next) -> F + Clone + Send + Sync + 'static,
) -> OpenApiRouter<Arc<App>>
where
    F: Future<Output = Response> + Send + 'static,
{
    routes.route_layer(from_fn(move |request: Request, next: Next| demand(role, request, next)))
}

/// Lets a request through if its role allows it.
pub(crate) async fn demand(role: Role, request: Request, next: Next) -> Response {
    let has = request.extensions().get().map(|visitor: &Visitor| visitor.identity.role);
    match has {
        Some(has) if has >= role => next.run(request).await,
        Some(has) => {
            Problem::forbidden(format!("this needs the role {role}, and the login has the role {has}")).into_response()
        }
        None => Problem::unexpected().into_response(),
    }
}

/// The same, for a change: it is recorded, also if it is refused.
pub(super) async fn demand_and_record(role: Role, request: Request, next: Next) -> Response {
    let visitor = request.extensions().get::<Visitor>().cloned();
    let change = format!("{} {}", request.method(), request.uri().path());
    let parameters = request.uri().query().unwrap_or_default().to_owned();
    let response = demand(role, request, next).await;
    if let Some(Visitor { identity, address, app }) = visitor {
        app.audit.record(&Line {
            at: moment_text(app.now().wall),
            who: &identity.name,
            address: &address,
            change,
            parameters: &parameters,
            status: response.status().as_u16(),
            changed: response.extensions().get().map(|Affected(jobs)| *jobs),
        });
    }
    response
}
