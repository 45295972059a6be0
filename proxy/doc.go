// Package proxy is the server that clients connect to. It behaves as the Redis behind it, and knows
// a few commands more.
//
// The way from a request to its reply:
//
//	listener, redcon   accept                                    listener.go, accept.go
//	client             PROXY header, TLS                         handshake.go
//	input              bytes that have been read, framed         input.go
//	dispatcher         whole requests, one after the other       handle.go
//	                   a row of the table for each command       dispatch.go, routes.go
//	  plain requests     gathered, relayed together              batch.go, handle.go
//	  lock commands      run here: package lockcmd               lock.go, lock_batch.go, question.go
//	  a few others       answered, completed from the upstream   *_reply.go
//	  all others         relayed                                 dispatch.go: relay
//	exchange           the Pipe, and waiting for its answers     exchange.go
//	passthrough.Pipe   home or lane, there and back
//	client.Write       replies, in the order of the requests     client.go
//
// Each client has a session. It is made of parts, each with those that it uses: dispatcher, locker,
// lockSession (how its lock commands ask the upstream), exchange, input, client. A part calls only
// those after it. All know the client, the Pipe and the Server (common).
//
// The session's goroutine reads its client until there is nothing to read. Then the session is
// parked: the goroutine ends, and an event loop reads the client. The loop relays in place whatever
// needs no waiting, in the order in which clients' requests arrive. It also runs lock commands, and
// reads on for more of them while their scripts run (park.go). For anything else, such as a dial, a
// goroutine resumes the session. A session whose command waits for other clients is parked as well.
// The goroutine stays where there are no event loops, with a client of a Unix socket, and behind a
// PROXY header.
//
// A session's goroutine that waits for the upstream, or for other clients, reads its client
// meanwhile (wait.go): if that closes, the waiting ends. When the session ends, tokens that the
// client has not read are given up (undelivered.go).
//
// The proxy adds no privilege: lock commands run as scripts in the client's turn, in the client's
// database, on a connection that is logged in as the client. Work that cannot wait for that
// connection, such as the renewal of session locks, uses another one with the same login.
//
// Goroutines, and what ends them:
//
//	accepting                    Serve; Shutdown or Close
//	a session that isn't parked  its client, drain or kill; Shutdown and Close wait for it
//	event loops                  Close
//	Upstream.Follow              Close
//	stuck and silent sessions    Close: Server.lookAfter
//
// Replies are written by the goroutine or loop that reads them: see package passthrough.
package proxy
