//! Logging in and out: a form, and a cookie for the session that it starts ([`crate::login::Token`]).
//!
//! These two paths need no login. A browser that requests a page without a login is redirected to the form,
//! and back afterwards. Programs are refused with 401, without causing a browser's login dialog.

use std::collections::HashMap;
use std::sync::Arc;

use askama::Template;
use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};

use super::shell::{Rendered, Shell, page};
use crate::app::{App, Peer};
use crate::login::{Credentials, Identity, Token};
use crate::prefix::{LOGIN, local, to_path};
use crate::problem::{Code, Outcome, Problem};

/// A person logs in and out of all namespaces at once.
type Whole = State<Arc<App>>;

/// The longest form: a name, a password and an address.
const FORM_BYTES_MAX: usize = 8 << 10;

#[derive(Debug, Template)]
#[template(path = "login.html")]
struct Form {
    shell: Shell,
    /// The path to go to afterwards.
    to: String,
    name: String,
    /// Why the last try failed.
    refusal: Option<String>,
}

/// The form. `to` is the way back.
pub(super) async fn show(shell: Shell, State(app): Whole) -> Outcome<Response> {
    let to = local(shell.given("to")).to_owned();
    if app.logins.is_none() {
        return Ok(to_path(&shell.base, &to));
    }
    Ok(Form::of(shell, &to, "", None)?.into_response())
}

/// Starts a session.
pub(super) async fn log_in(shell: Shell, State(app): Whole, request: Request) -> Outcome<Response> {
    let peer = request
        .extensions()
        .get::<Peer>()
        .cloned()
        .ok_or_else(Problem::unexpected)?;
    let cookie = Token::cookie_name(request.headers());
    let is_secure = request
        .headers()
        .get("x-forwarded-proto")
        .is_some_and(|scheme| scheme == "https");
    let filled = app.bodies.read(request).await?;
    if filled.len() > FORM_BYTES_MAX {
        return Err(Problem::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            "body_too_large",
            "the form is too long",
        ));
    }
    let mut filled: HashMap<_, _> = form_urlencoded::parse(&filled).into_owned().collect();
    let [name, password, to] =
        ["name", "password", "to"].map(|field| filled.remove(field).unwrap_or_default());
    let to = local(&to);
    let Some(logins) = &app.logins else {
        return Ok(to_path(&shell.base, to));
    };
    match logins
        .begin(Credentials::of_person(name.clone(), password), peer.ip)
        .await
    {
        Ok((identity, token)) => {
            record(&app, &identity, &peer, "POST /login");
            let cookie = [(
                header::SET_COOKIE,
                token.cookie(&cookie, &shell.base, is_secure),
            )];
            Ok((cookie, to_path(&shell.base, to)).into_response())
        }
        Err(Problem {
            status,
            code,
            detail,
        }) => {
            let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
            let mut response = (status, Form::of(shell, to, &name, Some(detail))?).into_response();
            response.extensions_mut().insert(Code(code));
            Ok(response)
        }
    }
}

/// Removes the session.
pub(super) async fn log_out(shell: Shell, State(app): Whole, request: Request) -> Response {
    let (token, cookie) = (
        Token::of(request.headers()),
        Token::cookie_name(request.headers()),
    );
    let peer = request.extensions().get::<Peer>();
    if let (Some(logins), Some(token), Some(peer)) = (&app.logins, token, peer) {
        if let Some(identity) = logins.of_session(&token, false) {
            record(&app, &identity, peer, "POST /logout");
        }
        logins.end(&token);
    }
    let cookie = [(header::SET_COOKIE, Token::no_cookie(&cookie, &shell.base))];
    (cookie, to_path(&shell.base, LOGIN)).into_response()
}

impl Form {
    fn of(shell: Shell, to: &str, name: &str, refusal: Option<String>) -> Rendered {
        let shell = Shell {
            is_inside: false,
            ..shell
        };
        page(&Self {
            shell,
            to: to.to_owned(),
            name: name.to_owned(),
            refusal,
        })
    }
}

fn record(app: &App, identity: &Identity, peer: &Peer, change: &str) {
    app.record(
        &identity.name,
        &peer.address,
        change,
        "",
        StatusCode::SEE_OTHER,
        None,
    );
}
