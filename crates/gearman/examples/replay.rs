//! Plays transcripts against a running server and prints one verdict for each scene: to find where another Gearman
//! server differs. This crate's own test is `tests/gearman/transcripts.rs`.
//!
//! `cargo run -p windlass-gearman --example replay -- ADDRESS FILE [NUMBER]`: all scenes of the file, or the one with
//! that number, from 1. A scene requires a server without functions and jobs.

#[path = "../tests/gearman/speech.rs"]
mod speech;

use std::net::SocketAddr;
use std::path::Path;
use std::process::ExitCode;

use windlass_testkit::transcript::{TcpWire, Transcript};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.as_slice() {
        [address, file] => replay(address, file, None),
        [address, file, number] => replay(address, file, number.parse().ok()),
        _ => Err("usage: replay ADDRESS FILE [NUMBER]".to_owned()),
    }
    .unwrap_or_else(|error| {
        eprintln!("{error}");
        ExitCode::from(2)
    })
}

fn replay(address: &str, file: &str, only: Option<usize>) -> Result<ExitCode, String> {
    let address: SocketAddr = address
        .parse()
        .map_err(|error| format!("{address}: {error}"))?;
    let transcript = Transcript::read(Path::new(file)).map_err(|error| error.to_string())?;
    let mut same = true;
    for (index, scene) in transcript
        .scenes
        .iter()
        .enumerate()
        .filter(|(index, _)| only.is_none_or(|n| n == index + 1))
    {
        let verdict = scene.play(&mut TcpWire::new(address), &speech::Gearman);
        same &= verdict.is_ok();
        let verdict = verdict
            .err()
            .map_or("same".to_owned(), |failure| failure.to_string());
        println!("{} · {}: {verdict}", index + 1, scene.name);
    }
    Ok(if same {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
