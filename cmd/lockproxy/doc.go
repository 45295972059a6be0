// Command lockproxy serves the Redis protocol in front of an existing Redis and adds lock commands.
//
// Without a subcommand it serves. Each subcommand is a struct of flags with an execute method,
// listed in program (main.go):
//
//	serve  serves clients                                 serve.go
//	run    holds a lock while a command runs              run.go, run_*.go
//	check  checks the configuration and the upstream      check.go, check_*.go
//	top    shows the locks that are held                  top.go, internal/top
//
// # Configuration
//
// kong fills options (options.go) from flags, the environment and the configuration file, in this
// order of precedence (config.go, environment.go). values.go and target.go have the types of flags.
// On SIGHUP a reloader reads all of them again and applies what can change in a running proxy
// (config_reload.go, certificates.go).
//
// # Serving
//
// serve opens the listeners, or takes them over from a running process (listen.go, handover.go). It
// starts the embedded store if there is no upstream (embedded.go), the admin server if there is an
// address for it (admin.go), and the proxy; then it tells systemd (notify.go). It ends with a
// signal or when a new process has taken over (upgrader.go): clients finish what they have begun,
// for at most --shutdown-timeout.
//
// # Running a command
//
// run takes a session lock (run_acquire.go, run_nested.go) on its own connection (run_conn.go),
// starts the command in a process group (run_child.go) and watches both (run_watch.go). Two files
// are pure. run_asking.go says for how long run asks again while the proxy is away. run_lease.go
// says how long the lock can be trusted without a word from the proxy, and when the command must be
// told to end.
//
// # Goroutines
//
// serve starts one each for the proxy, the admin server, the upgrader, the embedded store's clock
// and the first checks of the upstream, and waits for all of them before it returns. run has one
// that reads its connection and one that waits for the command.
package main
