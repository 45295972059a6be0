// The program of clients/rust/README.md, and what it uses of the program around it.
use lockproxy::{Options, Wait};
use std::time::Duration;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    // the program of README.md
    Ok(())
}
