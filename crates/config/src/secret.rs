//! Passwords, given as a value or in a file.

use std::fs;
use std::io;
use std::path::Path;

use crate::Error;

/// The password; or the content of the file, if one is named, without surrounding blanks.
///
/// # Errors
///
/// The file cannot be read.
pub fn secret(password: &str, file: &Path) -> io::Result<String> {
    if file.as_os_str().is_empty() {
        return Ok(password.to_owned());
    }
    fs::read_to_string(file).map(|text| text.trim().to_owned())
}

/// Reads the password. Refuses a password beside a file, and a file that cannot be read or is empty. The keys are those of the
/// password and of the file; `named` is the name of the second one in messages about the first.
///
/// # Errors
///
/// [`Error::Senseless`], with the key.
pub fn check_secret(
    [password_key, file_key]: [&'static str; 2],
    named: &str,
    password: &str,
    file: &Path,
) -> Result<String, Error> {
    let in_file = !file.as_os_str().is_empty();
    if in_file && !password.is_empty() {
        return Err(Error::senseless(password_key, format!("must not be given with {named}")));
    }
    match secret(password, file) {
        Err(error) => Err(Error::senseless(file_key, format!("cannot read {}: {error}", file.display()))),
        Ok(secret) if secret.is_empty() && in_file => {
            Err(Error::senseless(file_key, format!("{} is empty", file.display())))
        }
        Ok(secret) => Ok(secret),
    }
}
