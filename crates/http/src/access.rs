//! Access control: the login is determined first, each group of routes requires a role, and changes are
//! recorded.

use std::sync::Arc;

use axum::extract::{FromRequestParts, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Method, Uri, header};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use utoipa_axum::router::OpenApiRouter;

use crate::app::{App, Peer, Shared};
use crate::audit::Affected;
use crate::guard;
use crate::login::{Credentials, Identity, LOGIN_REQUIRED, LOGIN_WRONG, Role, Token};
use crate::namespace::{self, PARAMETER, Place};
use crate::prefix::{ASSETS, LOGIN, to_login};
use crate::problem::{Code, Outcome, Problem};

/// The user of a request, an extension of the request that the groups of routes check.
#[derive(Clone, Debug)]
pub(crate) struct Visitor {
    pub(crate) identity: Identity,
    /// What the request is about, and what the visitor may do there; or why it cannot be told.
    pub(crate) place: Outcome<Place>,
    /// A cookie shows who asks.
    pub(crate) has_session: bool,
    address: Box<str>,
    app: Arc<App>,
}

/// Sent by a page with automatic refreshes, which must not extend a session.
const REFRESH_HEADER: &str = "x-windlass-refresh";

/// Refuses requests of foreign pages and without a valid login, and adds common headers to all
/// responses.
pub(crate) async fn admit(
    State(app): State<Arc<App>>,
    mut request: Request,
    next: Next,
) -> Response {
    app.counts.commands(1);
    let form = guard::check_form(request.version(), request.uri(), request.headers());
    let (is_wrong, asked) = (form.is_err(), form.and_then(|()| asked(&app, &request)));
    let mut response = match identified(&app, asked).await {
        Ok((identity, has_session, Peer { address, .. })) => {
            let place = place(&app, &identity, &mut request).await;
            request.extensions_mut().insert(Visitor {
                identity,
                place,
                has_session,
                address,
                app: Arc::clone(&app),
            });
            next.run(request).await
        }
        Err(problem) => refused(&request, problem),
    };
    if let Some(Code(code)) = response.extensions().get() {
        app.counts.refused(code);
        if *code == LOGIN_WRONG {
            app.counts.auth_failed();
        }
    }
    let headers = response.headers_mut();
    if is_wrong {
        // The next bytes may be the rest of this request.
        headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    headers.insert(
        header::X_CONTENT_TYPE_OPTIONS,
        HeaderValue::from_static("nosniff"),
    );
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    response
}

impl FromRequestParts<Arc<App>> for Shared {
    type Rejection = Problem;

    /// Fails for a request that was not admitted: it would be about the whole daemon.
    async fn from_request_parts(parts: &mut Parts, _: &Arc<App>) -> Outcome<Self> {
        let visitor: &Visitor = parts.extensions.get().ok_or_else(Problem::unexpected)?;
        visitor.within().map(Self)
    }
}

/// What a request is about. Handlers get the address without it.
async fn place(app: &App, identity: &Identity, request: &mut Request) -> Outcome<Place> {
    let of_page = request.extensions().get().cloned();
    let of_change = namespace::of_change(request.uri().path());
    let asked = namespace::asked(request.uri_mut(), of_change.or(of_page).as_ref())?;
    // Probes must not wait for the engine, and a stranger must not learn which namespaces there are.
    let asked = asked.filter(|_| !is_open(request.uri().path()));
    let place = Place::of(&identity.grant, asked)?;
    if place.namespace.is_some() {
        app.within(place.namespace.clone())
            .check_namespace()
            .await?;
    }
    Ok(place)
}

impl Visitor {
    /// What the visitor may do where the request is.
    pub(crate) fn role(&self) -> Option<Role> {
        self.place.as_ref().ok().map(|place| place.role)
    }

    /// The daemon, as far as the request reaches.
    fn within(&self) -> Outcome<App> {
        let Place { namespace, .. } = self.place.clone()?;
        Ok(self.app.within(namespace))
    }

    fn check(&self, role: Role) -> Outcome<()> {
        let has = self.place.as_ref().map_err(Clone::clone)?.role;
        if has >= role {
            return Ok(());
        }
        Err(Problem::forbidden(format!(
            "requires the role {role}; the login has the role {has}"
        )))
    }

    /// The parameters of a request, with the namespace in front, for the audit log.
    fn parameters(&self, uri: &Uri) -> String {
        let query = uri.query().unwrap_or_default();
        let place = self.place.as_ref().ok();
        match place.and_then(|place| place.namespace.as_deref()) {
            None => query.to_owned(),
            Some(name) if query.is_empty() => format!("{PARAMETER}={name}"),
            Some(name) => format!("{PARAMETER}={name}&{query}"),
        }
    }

    /// Returns true if logins are configured, so that users have names.
    pub(crate) fn is_named(&self) -> bool {
        self.app.logins.is_some()
    }
}

/// A request without a valid login: a person is sent to the form, a program gets a challenge.
fn refused(request: &Request, problem: Problem) -> Response {
    let headers = request.headers();
    let accepts = headers
        .get(header::ACCEPT)
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
    let is_person = request.method() == Method::GET && accepts.contains("text/html");
    if problem.code == LOGIN_REQUIRED && is_person {
        return to_login(request.uri(), request.extensions());
    }
    let mut response = problem.into_response();
    if Token::of(headers).is_some() {
        // The request comes from a page, so the browser must not open a login dialog.
        response.headers_mut().remove(header::WWW_AUTHENTICATE);
    }
    response
}

/// The identity of the user, `true` if it is from a session, and the peer.
async fn identified(app: &App, asked: Outcome<(Peer, Claim)>) -> Outcome<(Identity, bool, Peer)> {
    let (peer, claim) = asked?;
    if let Some(user) = &peer.owner {
        return Ok((Identity::owner(user), false, peer));
    }
    let (identity, has_session) = match (&app.logins, claim) {
        (None, _) | (_, Claim::None) => (Identity::anyone(), false),
        (Some(logins), Claim::Credentials(credentials)) => {
            (logins.identify(credentials?, peer.ip).await?, false)
        }
        (
            Some(logins),
            Claim::Session {
                token,
                is_use,
                comes_from_page,
            },
        ) => {
            comes_from_page?;
            let ended =
                || Problem::unauthorized(LOGIN_REQUIRED, "the session has ended: log in again");
            (logins.of_session(&token, is_use).ok_or_else(ended)?, true)
        }
    };
    Ok((identity, has_session, peer))
}

/// The credentials to verify.
enum Claim {
    /// The path is open to everyone.
    None,
    Credentials(Outcome<Credentials>),
    Session {
        token: Token,
        is_use: bool,
        /// The result of checking that a change was requested by a page of this server.
        comes_from_page: Outcome<()>,
    },
}

impl Claim {
    fn of(method: &Method, headers: &HeaderMap) -> Self {
        match Token::of(headers) {
            Some(token) if !headers.contains_key(header::AUTHORIZATION) => Self::Session {
                token,
                is_use: !headers.contains_key(REFRESH_HEADER),
                comes_from_page: guard::check_session(method, headers),
            },
            _ => Self::Credentials(Credentials::of(headers)),
        }
    }
}

/// Returns true for a path that needs no login.
fn is_open(path: &str) -> bool {
    guard::OPEN.contains(&path) || path == LOGIN || path.starts_with(ASSETS)
}

fn asked(app: &App, request: &Request) -> Outcome<(Peer, Claim)> {
    let peer = request
        .extensions()
        .get::<Peer>()
        .cloned()
        .ok_or_else(Problem::unexpected)?;
    guard::check(
        request.method(),
        request.uri(),
        request.headers(),
        app.hosts.as_deref(),
        peer.ip.is_some(),
    )?;
    let claim = if is_open(request.uri().path()) {
        Claim::None
    } else {
        Claim::of(request.method(), request.headers())
    };
    Ok((peer, claim))
}

/// A group of routes about the whole daemon.
pub(crate) fn of_whole(routes: OpenApiRouter<Arc<App>>) -> OpenApiRouter<Arc<App>> {
    routes.route_layer(from_fn(|request: Request, next: Next| {
        demand_whole(request, next)
    }))
}

/// A group of routes that demands a role.
pub(crate) fn of_role<F>(
    routes: OpenApiRouter<Arc<App>>,
    role: Role,
    demand: impl Fn(Role, Request, Next) -> F + Clone + Send + Sync + 'static,
) -> OpenApiRouter<Arc<App>>
where
    F: Future<Output = Response> + Send + 'static,
{
    routes.route_layer(from_fn(move |request: Request, next: Next| {
        demand(role, request, next)
    }))
}

/// Accepts a request if the role allows it.
pub(crate) async fn demand(role: Role, request: Request, next: Next) -> Response {
    let visitor: Option<&Visitor> = request.extensions().get();
    match visitor.map_or_else(|| Err(Problem::unexpected()), |it| it.check(role)) {
        Ok(()) => next.run(request).await,
        Err(problem) => problem.into_response(),
    }
}

/// Accepts a request about the whole daemon: one limited to a namespace would show or change others.
async fn demand_whole(request: Request, next: Next) -> Response {
    let visitor: Option<&Visitor> = request.extensions().get();
    let app = visitor.map_or_else(|| Err(Problem::unexpected()), Visitor::within);
    match app.and_then(|app| app.check_whole()) {
        Ok(()) => next.run(request).await,
        Err(problem) => problem.into_response(),
    }
}

/// The same, for a change, which is recorded even if it is refused.
pub(crate) async fn demand_and_record(role: Role, request: Request, next: Next) -> Response {
    let visitor = request.extensions().get::<Visitor>().cloned();
    let change = format!("{} {}", request.method(), request.uri().path());
    let parameters = visitor
        .as_ref()
        .map(|it| it.parameters(request.uri()))
        .unwrap_or_default();
    let response = demand(role, request, next).await;
    if let Some(Visitor {
        identity,
        address,
        app,
        ..
    }) = visitor
    {
        let changed = response.extensions().get().map(|Affected(jobs)| *jobs);
        app.record(
            &identity.name,
            &address,
            &change,
            &parameters,
            response.status(),
            changed,
        );
    }
    response
}
