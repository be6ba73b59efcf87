//! Secrets for operators: lines for the file `http.logins` (people with passwords, programs with tokens), and keys for
//! CURVE.

use std::io::{self, IsTerminal as _, Write as _};

use windlass_config::Failure;
use windlass_http::NewLogin;
use windlass_zmtp::curve::CurveSecretKey;

use crate::arguments;

/// A person. The password is asked for twice, or is the first line of standard input.
pub(crate) fn password(
    arguments::NewLogin { name, role }: &arguments::NewLogin,
) -> Result<(), Failure> {
    let login = read_password()
        .and_then(|password| NewLogin::user(name, role, &password))
        .map_err(failure)?;
    print(&login.line)
}

/// A program. The token goes to standard error, so that standard output can be appended to the file.
pub(crate) fn token(
    arguments::NewLogin { name, role }: &arguments::NewLogin,
) -> Result<(), Failure> {
    let login = NewLogin::token(name, role).map_err(failure)?;
    print(&login.line)?;
    writeln!(io::stderr(), "{}", login.token.unwrap_or_default()).map_err(failure)
}

/// A pair of keys. The public key goes to standard error, so that standard output can be written to the file.
pub(crate) fn curve_keypair() -> Result<(), Failure> {
    let mut random = [0; 32];
    getrandom::fill(&mut random).map_err(|error| Failure::Runtime(error.to_string()))?;
    let secret = CurveSecretKey::new(random);
    print(&secret.expose())?;
    writeln!(io::stderr(), "public key: {}", secret.public()).map_err(failure)
}

fn read_password() -> io::Result<String> {
    if !io::stdin().is_terminal() {
        let mut line = String::new();
        io::stdin().read_line(&mut line)?;
        return Ok(line.trim_end_matches(['\r', '\n']).to_owned());
    }
    let password = rpassword::prompt_password("Password: ")?;
    match rpassword::prompt_password("Again: ")? == password {
        true => Ok(password),
        false => Err(io::Error::other("the passwords differ")),
    }
}

fn print(line: &str) -> Result<(), Failure> {
    writeln!(io::stdout(), "{line}").map_err(failure)
}

fn failure(error: io::Error) -> Failure {
    Failure::Runtime(error.to_string())
}
