//! Does what it is told with the Rust crate: see features in conformance_test.go. The third argument
//! is sync or tokio.

mod with_tokio;

use std::io::{stdin, BufRead};
use std::time::Duration;

use lockproxy::{Error, Lock, Options, Wait};
use redis::{Client, ConnectionAddr, ConnectionInfo, ErrorKind, RedisConnectionInfo, TlsCertificates,
    Value};

/// The error of the work.
#[derive(Debug)]
enum Failure {
    Mine,
    Lock(Error),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Failure::Lock(error)
    }
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let client = client(&args[1], args[2].parse().unwrap());
    if args[3] == "tokio" {
        return with_tokio::run(client);
    }
    loop {
        let line = told();
        let words: Vec<&str> = line.iter().map(String::as_str).collect();
        let result = match words.first() {
            None => return,
            Some(&"lock") => lock(&client, &words),
            _ => once(&client, &words),
        };
        report(result);
    }
}

fn client(host: &str, port: u16) -> Client {
    let (host, ca) = (host.to_string(), std::env::var("CA").ok());
    let redis = RedisConnectionInfo {
        username: std::env::var("USERNAME").ok(),
        password: std::env::var("PASSWORD").ok(),
        ..Default::default()
    };
    let Some(ca) = ca else {
        return Client::open(ConnectionInfo { addr: ConnectionAddr::Tcp(host, port), redis }).unwrap();
    };
    rustls::crypto::ring::default_provider().install_default().unwrap();
    let addr = ConnectionAddr::TcpTls { host, port, insecure: false, tls_params: None };
    let root_cert = Some(std::fs::read(ca).unwrap());
    let certificates = TlsCertificates { client_tls: None, root_cert };
    Client::build_with_tls(ConnectionInfo { addr, redis }, certificates).unwrap()
}

fn told() -> Vec<String> {
    let mut line = String::new();
    stdin().lock().read_line(&mut line).unwrap();
    line.split_whitespace().map(String::from).collect()
}

fn report(result: Result<String, Failure>) {
    match result {
        Ok(said) => println!("{said}"),
        Err(Failure::Mine) => println!("raised"),
        Err(Failure::Lock(error)) => println!("{}", name(&error)),
    }
}

fn name(error: &Error) -> String {
    match error {
        Error::NotAcquired(_) => "refused".to_string(),
        Error::Lost(_) => "lost".to_string(),
        error => format!("error {error}").replace('\n', " "),
    }
}

fn options(words: &[&str]) -> Options {
    let mut options = Options::default();
    for (name, value) in words.iter().filter_map(|word| word.split_once('=')) {
        let seconds: f64 = value.parse().unwrap();
        let time = Duration::try_from_secs_f64(seconds).unwrap_or_default();
        match name {
            "timeout" => options.timeout = time,
            "max" => options.max = Some(time),
            "ttl" => options.ttl = Some(time),
            "early" => options.early = Some(time),
            _ if time.is_zero() => options.wait = Wait::Forever,
            _ => options.wait = Wait::For(time),
        }
    }
    options
}

fn text(value: &Value) -> String {
    match value {
        Value::BulkString(bytes) => String::from_utf8_lossy(bytes).to_string(),
        Value::Okay => "OK".to_string(),
        value => format!("{value:?}"),
    }
}

fn fenced(words: &[&str]) -> redis::Cmd {
    let mut cmd = redis::cmd(words[1]);
    cmd.arg(&words[2..]);
    cmd
}

fn lock(client: &Client, words: &[&str]) -> Result<String, Failure> {
    let mut lock = lockproxy::lock(client, words[1], &options(words))?;
    println!("held {}", lock.token);
    steps(&mut lock, "leave")?;
    lock.release()?;
    Ok("released".to_string())
}

/// Does steps until the last one, and returns its words.
fn steps(lock: &mut Lock, last: &str) -> Result<Vec<String>, Failure> {
    loop {
        let line = told();
        let words: Vec<&str> = line.iter().map(String::as_str).collect();
        if words[0] == last {
            return Ok(line);
        }
        let said = match words[0] {
            "raise" => return Err(Failure::Mine),
            "fence" => lock.fence(&fenced(&words)).map(|reply| format!("reply {}", text(&reply))),
            "extend" => {
                let timeout = Duration::from_secs(words[1].parse().unwrap());
                lock.extend(timeout).map(|_| "extended".to_string())
            }
            "check" => lock.check().map(|_| "ok".to_string()),
            _ => {
                while lock.check().is_ok() {
                    std::thread::sleep(Duration::from_millis(10));
                }
                Ok("told".to_string())
            }
        };
        println!("{}", said.unwrap_or_else(|error| name(&error)));
    }
}

fn once(client: &Client, words: &[&str]) -> Result<String, Failure> {
    let mut connection = connection(client)?;
    let value = lockproxy::once(&mut *connection, client, words[1], &options(words), |claim| {
        println!("make {}", claim.token);
        Ok::<_, Failure>(steps(claim, "value")?.swap_remove(1))
    })?;
    Ok(format!("value {}", String::from_utf8_lossy(&value)))
}

/// The program's own connection, which is opened once.
fn connection(
    client: &Client,
) -> Result<std::sync::MutexGuard<'static, redis::Connection>, Failure> {
    use std::sync::{Mutex, OnceLock};
    static OPEN: OnceLock<Mutex<redis::Connection>> = OnceLock::new();
    if OPEN.get().is_none() {
        let open = client.get_connection().map_err(Error::from)?;
        let _ = OPEN.set(Mutex::new(open));
    }
    OPEN.get().unwrap().lock().map_err(|_| {
        let error = redis::RedisError::from((ErrorKind::IoError, "poisoned"));
        Failure::Lock(Error::from(error))
    })
}
