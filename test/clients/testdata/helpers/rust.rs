// clients/rust/lockproxy.rs.
//
// usage: rust HOST PORT            every step
//        rust HOST PORT hold KEY   holds KEY until it is killed; wait KEY SECONDS waits for it

#[path = "../../../../clients/rust/lockproxy.rs"]
#[allow(dead_code)]
mod lockproxy;

use lockproxy::{lock, once, Error, Lock, Options, Reply};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::Duration;

const LONG: Duration = Duration::from_secs(120);

/// The proxy's address.
fn to() -> String {
    let args: Vec<String> = std::env::args().collect();
    format!("{}:{}", args[1], args[2])
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if args.len() > 2 {
        let wait = args.get(4).map(|seconds| seconds.parse().unwrap());
        let _held = take(&args[3], wait).unwrap();
        println!("held");
        loop {
            thread::park();
        }
    }
    let steps: [(&str, fn()); 7] = [("acquire", acquire), ("wait", waits), ("exception", exception),
        ("fence", fence), ("lost", loses), ("longest", longest), ("once", makes)];
    for (name, step) in steps {
        step();
        println!("ok {}", name);
    }
}

fn take(key: &str, wait: Option<f64>) -> Result<Lock, Error> {
    lock(to(), key, &Options { timeout: 600.0, wait, ..Options::default() })
}

fn acquire() {
    let key = "helper:rust:acquire";
    let held = take(key, None).unwrap();
    assert!(matches!(take(key, None), Err(Error::NotAcquired(_))));
    assert!(matches!(take(key, Some(0.1)), Err(Error::NotAcquired(_))));
    held.check().unwrap();
    let first = held.token;
    held.close().unwrap();
    assert!(take(key, None).unwrap().token > first);
    let mut options = Options { timeout: -1.0, ..Options::default() };
    assert!(matches!(lock(to(), key, &options), Err(Error::Redis(_))));
    options = Options { auth: vec!["secret".to_string()], ..Options::default() };
    assert!(matches!(lock(to(), key, &options), Err(Error::Redis(_))));
    assert!(matches!(lock("127.0.0.1:1", key, &options), Err(Error::Io(_))));
}

fn waits() {
    let key = "helper:rust:wait";
    let held = take(key, None).unwrap();
    let waiter = thread::spawn(move || take(key, Some(0.0)).unwrap().token);
    while ask(&format!("LOCKINFO {} WAITERS", key)).starts_with("*0") {
        thread::sleep(Duration::from_millis(10));
    }
    assert!(!waiter.is_finished());
    let first = held.token;
    held.close().unwrap();
    assert!(waiter.join().unwrap() > first);
}

/// A lock ends with its block, by an error or a panic too.
fn exception() {
    let key = "helper:rust:exception";
    let failed = || -> Result<(), Error> {
        let _held = take(key, None)?;
        Err(Error::Redis("its own".to_string()))
    };
    assert!(matches!(failed(), Err(Error::Redis(text)) if text == "its own"));
    let panicked = thread::spawn(move || {
        let _held = take(key, None).unwrap();
        std::panic::resume_unwind(Box::new("its own")); // says nothing
    });
    assert!(panicked.join().is_err());
    take(key, None).unwrap().close().unwrap();
}

fn fence() {
    let held = take("helper:rust:fence", None).unwrap();
    let value = "helper:rust:fence:value";
    assert_eq!(held.fence(&["SET", value, "one"]).unwrap(), Reply::Status("OK".to_string()));
    assert_eq!(held.fence(&["GET", value]).unwrap(), Reply::Bulk(b"one".to_vec()));
    assert!(matches!(held.fence(&["INCR", value]), Err(Error::Redis(_))));
    let none = "helper:rust:none";
    assert_eq!(held.fence(&["GET", none]).unwrap(), Reply::Null);
    let both = held.fence(&["MGET", value, none]).unwrap();
    assert_eq!(both, Reply::Array(vec![Reply::Bulk(b"one".to_vec()), Reply::Null]));
}

fn loses() {
    let key = "helper:rust:lost";
    let (held, other) = (take(key, None).unwrap(), take("helper:rust:lost:2", None).unwrap());
    assert_eq!(ask(&format!("UNLOCK {} FORCE", key)), ":1\r\n+OK\r\n");
    assert!(held.wait_lost(LONG));
    assert!(matches!(held.check(), Err(Error::Lost(_))));
    assert!(matches!(held.fence(&["SET", key, "1"]), Err(Error::Lost(_))));
    assert!(matches!(held.close(), Err(Error::Lost(_))));
    other.close().unwrap();
}

fn longest() {
    let options = Options { max: Some(0.3), owner: Some("me".to_string()), ..Options::default() };
    let held = lock(to(), "helper:rust:max", &options).unwrap();
    assert!(held.wait_lost(LONG));
    assert!(matches!(held.close(), Err(Error::Lost(_))));
}

/// What a proxy answers to one request.
fn ask(request: &str) -> String {
    let mut stream = TcpStream::connect(to()).unwrap();
    stream.write_all(format!("{}\r\nQUIT\r\n", request).as_bytes()).unwrap();
    let mut reply = String::new();
    stream.read_to_string(&mut reply).unwrap();
    reply
}

fn claim_of(key: &str) -> String {
    let scan = ask(&format!("LOCKSCAN 0 MATCH {}:once:* COUNT 100000", key));
    scan[scan.find(key).unwrap()..].lines().next().unwrap().to_string()
}

fn fails(_: &Lock) -> Result<String, Error> {
    Err(Error::Redis("its own".to_string()))
}

fn makes() {
    let key = "helper:rust:once";
    let stores = Options { ttl: Some(300.0), ..Options::default() };
    let none = Options::default();
    let mut waiter = None;
    let value = once(to(), key, &stores, |claim| {
        assert!(claim.token > 0);
        assert!(matches!(once(to(), key, &none, fails), Err(Error::NotAcquired(_))));
        waiter = Some(thread::spawn(move || {
            once(to(), key, &Options { wait: Some(0.0), ..Options::default() }, fails).unwrap()
        }));
        while ask(&format!("LOCKINFO {} WAITERS", claim_of(key))).starts_with("*0") {
            thread::sleep(Duration::from_millis(10));
        }
        Ok::<_, Error>("the value")
    });
    assert_eq!(value.unwrap(), b"the value");
    assert_eq!(waiter.unwrap().join().unwrap(), b"the value");
    assert_eq!(once(to(), key, &none, fails).unwrap(), b"the value");
    assert!(ask(&format!("TTL {}", key)).as_str() > ":200");
    let early = Options { early: Some(400.0), ttl: Some(600.0), ..Options::default() };
    let newer = once(to(), key, &early, |_| {
        assert_eq!(once(to(), key, &early, fails).unwrap(), b"the value");
        Ok::<_, Error>("newer")
    });
    assert_eq!(newer.unwrap(), b"newer");
    assert_eq!(once(to(), key, &none, fails).unwrap(), b"newer");

    let key = "helper:rust:once:2";
    assert!(matches!(once(to(), key, &none, fails), Err(Error::Redis(text)) if text == "its own"));
    let long = Options { timeout: 600.0, ..Options::default() };
    let lost = once(to(), key, &long, |claim| {
        assert_eq!(ask(&format!("UNLOCK {} FORCE", claim_of(key))), ":1\r\n+OK\r\n");
        assert!(claim.wait_lost(LONG));
        Ok::<_, Error>("late")
    });
    assert!(matches!(lost, Err(Error::Lost(_))));
    assert_eq!(ask(&format!("GET {}", key)), "$-1\r\n+OK\r\n");
    let now = Options { ttl: Some(0.0), ..Options::default() };
    let refused = once(to(), key, &now, |_| Ok::<_, Error>("1"));
    assert!(matches!(refused, Err(Error::Redis(_))));
}
