//! The crate `gearman` as a peer of the interop tests; `../../peers.rs` describes the lines it speaks.
//!
//! Usage: crate-peer HOST PORT client [exceptions] | crate-peer HOST PORT worker
use std::error::Error;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use gearman::admin::AdminClient;
use gearman::client::{Client, ClientBuilder, JobEvent, JobHandle, Priority, SubmitOptions};
use gearman::worker::{WorkError, WorkerBuilder, WorkerJob};
use tokio::io::{AsyncBufReadExt, BufReader};

type Outcome<T = ()> = Result<T, Box<dyn Error + Send + Sync>>;

#[tokio::main]
async fn main() -> Outcome {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [host, port, role, rest @ ..] = &arguments[..] else {
        return Err("HOST PORT client|worker".into());
    };
    let server = format!("{host}:{port}");
    match role.as_str() {
        "client" => client(&server, !rest.is_empty()).await,
        "worker" => worker(server).await,
        _ => Err("client or worker".into()),
    }
}

async fn client(server: &str, exceptions: bool) -> Outcome {
    let mut admin = AdminClient::connect(server).await?;
    let client = Arc::new(
        ClientBuilder::new()
            .servers([server])
            .with_exceptions(exceptions)
            .connect()
            .await?,
    );
    // Only the client that received a handle can ask about it.
    let mut handles: Vec<JobHandle> = Vec::new();
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    while let Some(line) = lines.next_line().await? {
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["submit", tag, way, priority, function, unique, body] => {
                handles.push(submit(&client, tag, way, priority, function, unique, body).await?);
            }
            ["ask", tag, handle] => {
                let handle = handles
                    .iter()
                    .find(|known| known.as_str() == handle)
                    .ok_or("not a handle of mine")?;
                let is = client.get_status(handle).await?;
                let (known, running) = (u8::from(is.known), u8::from(is.running));
                println!(
                    "{tag} is {known} {running} {} {}",
                    is.numerator, is.denominator
                );
            }
            ["ask-unique", tag, handle] => {
                let handle = handles
                    .iter()
                    .find(|known| known.as_str() == handle)
                    .ok_or("not a handle of mine")?;
                let is = client.get_status_unique(handle).await?;
                let (known, running) = (u8::from(is.known), u8::from(is.running));
                let clients = is.client_count.ok_or("no count of clients")?;
                println!(
                    "{tag} is {known} {running} {} {} {clients}",
                    is.numerator, is.denominator
                );
            }
            ["admin", what, ref handle @ ..] => {
                println!(
                    "admin answer {}",
                    hex::encode(administer(&mut admin, what, handle).await?.join("\n"))
                );
            }
            ["wait"] => {}
            _ => return Err(line.into()),
        }
    }
    Ok(())
}

async fn submit(
    client: &Arc<Client>,
    tag: &str,
    way: &str,
    priority: &str,
    function: &str,
    unique: &str,
    body: &str,
) -> Outcome<JobHandle> {
    let options = if way == "background" {
        SubmitOptions::background()
    } else {
        SubmitOptions::foreground()
    };
    let options = options.with_priority(match priority {
        "high" => Priority::High,
        "low" => Priority::Low,
        _ => Priority::Normal,
    });
    let unique = String::from_utf8(hex::decode(unique)?)?;
    let unique = Some(unique.as_str()).filter(|unique| !unique.is_empty());
    let job = client
        .submit(function, unique, hex::decode(body)?, options)
        .await?;
    println!("{tag} created {}", job.handle);
    if let Some(mut events) = job.events {
        let tag = tag.to_owned();
        tokio::spawn(async move {
            while let Some(event) = events.next().await {
                match event {
                    JobEvent::Status {
                        numerator,
                        denominator,
                    } => println!("{tag} status {numerator} {denominator}"),
                    JobEvent::Data(data) => println!("{tag} data {}", hex::encode(data)),
                    JobEvent::Warning(data) => println!("{tag} warning {}", hex::encode(data)),
                    JobEvent::Complete(data) => println!("{tag} complete {}", hex::encode(data)),
                    JobEvent::Fail => println!("{tag} fail"),
                    JobEvent::Exception(data) => println!("{tag} exception {}", hex::encode(data)),
                }
            }
        });
    }
    Ok(job.handle)
}

async fn administer(admin: &mut AdminClient, what: &str, handle: &[&str]) -> Outcome<Vec<String>> {
    Ok(match what {
        "version" => vec![format!("OK {}", admin.version().await?)],
        "functions" => (admin.status().await?.iter())
            .map(|row| {
                format!(
                    "{} {} {} {}",
                    row.function, row.total, row.running, row.worker_count
                )
            })
            .collect(),
        "workers" => (admin.workers().await?.iter())
            .map(|row| {
                format!(
                    "{} {} {} : {}",
                    row.fd,
                    row.ip,
                    row.client_id,
                    row.functions.join(" ")
                )
            })
            .collect(),
        "jobs" => (admin.show_jobs().await?.iter())
            .map(|row| {
                let (ignored, queued) = (u8::from(row.ignore_job), u8::from(row.queued));
                format!("{} {} {ignored} {queued}", row.handle, row.retries)
            })
            .collect(),
        "uniques" => admin
            .show_unique_jobs()
            .await?
            .into_iter()
            .map(|row| row.unique)
            .collect(),
        "cancel" => {
            admin
                .cancel_job(handle.first().ok_or("which job?")?)
                .await?;
            vec!["OK".to_owned()]
        }
        _ => return Err(what.into()),
    })
}

async fn worker(server: String) -> Outcome {
    let _worker = WorkerBuilder::new()
        .servers([server])
        .concurrency(1)
        .register("echo", |job: WorkerJob| async move { Ok(job.payload) })
        .register("note", |job: WorkerJob| async move {
            println!("worker note {}", hex::encode(&job.payload));
            Ok(job.payload)
        })
        .register("steps", steps)
        .register("fail", |_: WorkerJob| async move { Err(WorkError::Fail) })
        .register("raise", |_: WorkerJob| async move {
            Err(WorkError::Exception("went wrong".into()))
        })
        .register("hold", hold)
        .run();
    std::future::pending().await
}

async fn steps(job: WorkerJob) -> Result<Bytes, WorkError> {
    job.reporter
        .report_status(1, 2)
        .await
        .map_err(|_| WorkError::Fail)?;
    job.reporter
        .send_data("half of ")
        .await
        .map_err(|_| WorkError::Fail)?;
    job.reporter
        .warn("mind the gap")
        .await
        .map_err(|_| WorkError::Fail)?;
    Ok([b"whole of ", &job.payload[..]].concat().into())
}

async fn hold(job: WorkerJob) -> Result<Bytes, WorkError> {
    job.reporter
        .report_status(3, 4)
        .await
        .map_err(|_| WorkError::Fail)?;
    let path = String::from_utf8_lossy(&job.payload).into_owned();
    while Path::new(&path).exists() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Ok("let go".into())
}
