use std::sync::Mutex;
use std::time::Duration;

use lockproxy::aio::{self, Held};
use lockproxy::Error;
use redis::aio::MultiplexedConnection;
use redis::Client;
use tokio::sync::mpsc::{unbounded_channel, UnboundedReceiver};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::{fenced, name, options, report, text, told, Failure};

type Lines = std::sync::Arc<tokio::sync::Mutex<UnboundedReceiver<Vec<String>>>>;

pub fn run(client: Client) {
    let (send, lines) = unbounded_channel();
    std::thread::spawn(move || loop {
        let line = told(); // reading can't be cancelled
        if line.is_empty() || send.send(line).is_err() {
            return;
        }
    });
    let lines: Lines = std::sync::Arc::new(tokio::sync::Mutex::new(lines));
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
        let mut connection = None;
        while let Some(line) = next(&lines).await {
            let words: Vec<&str> = line.iter().map(String::as_str).collect();
            if words[0] != "lock" {
                report(once(&client, &mut connection, &words, &lines).await);
            } else if words.contains(&"cancel") {
                tokio::select! {
                    result = lock(&client, &words, &lines) => report(result),
                    _ = next(&lines) => println!("cancelled"),
                }
            } else {
                report(lock(&client, &words, &lines).await);
            }
        }
    });
}

async fn next(lines: &Lines) -> Option<Vec<String>> {
    lines.lock().await.recv().await
}

async fn lock(client: &Client, words: &[&str], lines: &Lines) -> Result<String, Failure> {
    let held = aio::lock(client, words[1], &options(words)).await?;
    println!("held {}", held.token);
    let result = steps(&held, "leave", lines).await;
    let released = held.release().await;
    result?;
    released?;
    Ok("released".to_string())
}

/// Does steps until the last one, and returns its words.
async fn steps(held: &Held, last: &str, lines: &Lines) -> Result<Vec<String>, Failure> {
    loop {
        let line = next(lines).await.unwrap_or_default();
        let words: Vec<&str> = line.iter().map(String::as_str).collect();
        if words[0] == last {
            return Ok(line);
        }
        let said = match words[0] {
            "raise" => return Err(Failure::Mine),
            "fence" => held.fence(&fenced(&words)).await.map(|reply| format!("reply {}", text(&reply))),
            "extend" => {
                let timeout = Duration::from_secs(words[1].parse().unwrap());
                held.extend(timeout).await.map(|_| "extended".to_string())
            }
            "check" => held.check().map(|_| "ok".to_string()),
            _ => {
                held.lost().await;
                Ok("told".to_string())
            }
        };
        println!("{}", said.unwrap_or_else(|error| name(&error)));
    }
}

/// The steps are a task of their own, since the work is dropped when the claim is lost, and the
/// program is still told what to do.
async fn once(
    client: &Client, connection: &mut Option<MultiplexedConnection>, words: &[&str], lines: &Lines,
) -> Result<String, Failure> {
    if connection.is_none() {
        *connection =
            Some(client.get_multiplexed_async_connection().await.map_err(Error::from)?);
    }
    let task: Mutex<Option<JoinHandle<()>>> = Mutex::new(None);
    let connection = connection.as_mut().unwrap();
    let made = aio::once(connection, client, words[1], &options(words), |claim| {
        let (send, result) = oneshot::channel();
        let lines = lines.clone();
        println!("make {}", claim.token);
        *task.lock().unwrap() = Some(tokio::spawn(async move {
            let _ = send.send(steps(&claim, "value", &lines).await);
        }));
        async { Ok::<_, Failure>(result.await.unwrap()?.swap_remove(1)) }
    })
    .await;
    let task = task.lock().unwrap().take();
    if let Some(task) = task {
        let _ = task.await;
    }
    Ok(format!("value {}", String::from_utf8_lossy(&made?)))
}
