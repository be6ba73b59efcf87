//! Debian's `gearman` and `gearadmin` as child processes.

use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::process::{Child, Command, Output, Stdio};

/// A program pointed at the daemon.
pub fn stock(program: &str, address: SocketAddr) -> Command {
    let mut command = Command::new(program);
    command.args([
        "-h",
        &address.ip().to_string(),
        "-p",
        &address.port().to_string(),
    ]);
    command
}

/// Runs a program to its end with this standard input.
pub fn run(command: &mut Command, input: &[u8]) -> Output {
    let mut child = start(
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped()),
    );
    let mut stdin = child.stdin.take().unwrap();
    // It may answer before it has read everything.
    let input = input.to_vec();
    let writer = std::thread::spawn(move || stdin.write_all(&input));
    let output = child.wait_with_output().unwrap();
    // A program that fails early does not read its input.
    let _ = writer.join().unwrap();
    output
}

/// Runs a program to its end, asserts success, and returns its output.
pub fn printed(command: &mut Command, input: &[u8]) -> String {
    let output = run(command, input);
    assert!(output.status.success(), "{command:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// The output of `gearadmin`.
pub fn admin(address: SocketAddr, question: &[&str]) -> String {
    printed(stock("gearadmin", address).args(question), b"")
}

fn start(command: &mut Command) -> Child {
    command
        .spawn()
        .unwrap_or_else(|error| panic!("{command:?}: {error}; tests/install-clients installs it"))
}

/// A program in the background, killed when dropped.
pub struct Running(Child);

impl Running {
    pub fn start(command: &mut Command) -> Self {
        Self(start(
            command
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null()),
        ))
    }

    /// Starts it with its output captured.
    pub fn start_piped(command: &mut Command) -> Self {
        Self(start(
            command
                .stdin(Stdio::null())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped()),
        ))
    }

    /// The next line on its standard error.
    pub fn complains(&mut self) -> String {
        let mut line = String::new();
        // A buffer of one byte, so that nothing further is read.
        BufReader::with_capacity(1, self.0.stderr.as_mut().unwrap())
            .read_line(&mut line)
            .unwrap();
        line
    }

    /// Waits until it ends by itself.
    pub fn output(mut self) -> Output {
        Output {
            stdout: read(self.0.stdout.take()),
            stderr: read(self.0.stderr.take()),
            status: self.0.wait().unwrap(),
        }
    }

    /// `kill -9`.
    pub fn kill(self) {
        drop(self);
    }
}

fn read(pipe: Option<impl std::io::Read>) -> Vec<u8> {
    let mut bytes = Vec::new();
    pipe.unwrap().read_to_end(&mut bytes).unwrap();
    bytes
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
