// Package passthrough carries requests to Redis and brings the replies back, byte for byte and in
// order.
//
// A request that depends on nothing can take a lane, a connection that all clients with the same
// login, database and protocol share. Everything that depends on connection state happens on the
// client's own upstream connection, its home, which is opened when it is first needed. A Pipe is one
// client's way to both:
//
//	Send, or Route and then Relay, Do or Ask; then Flush
//
//	session goroutine:  -> home, or lane: one write for many
//	event loop:         -> home at once, lanes at the end of the iteration, or before a home is
//	                       written
//
// They are the same functions: one argument says whether they may wait, the iteration of the loop.
//
//	connReader  ->  home, lane or judge  ->  demux: replies  ->  pendingQueue: what they answer
//	            ->  clientWriter  ->  client
//
// The door decides whether a new client needs a home at once, so that Redis itself judges it. It
// asks Redis at most twice a second whether it lets new clients in (Pipe.Enter, door). A client
// that is let in by an older answer is judged again (client.mustLogIn), once its home owes it
// nothing: the session awaits that (Pipe.AwaitsJudgement). Some homes are open before their clients
// come (spares): an event loop gives one to a client in the turn of its request
// (homeSide.takeHome). A home that its client does not need any more becomes a spare under two
// conditions. Nothing of the client is left on it, or RESET makes it so (client.releaseHomeLocked),
// and nobody can have been shown its number meanwhile (numbers).
//
// The greetings of libraries when they connect (Greets) take no home while there are many. A lane
// that nothing else goes by takes them, State notes what Redis has accepted, and the connections
// that serve the client later are set up so. While there are few, a client that needs a home later
// has it before a command of its own shows that one is opened, as MONITOR does.
//
// A login of which lanes are open is put to a judge, a connection that only takes logins, one
// client's at a time (judges). The lanes serve the client then. It gets its home when it needs one,
// or stays (Pipe.OpenOwn): from then on Redis knows that it is there. Every other login takes a home.
//
// Route and Send choose home or lane, by the request (Way) and by State. A lane serves a client
// that Redis has admitted, whose home is in the state of a new connection, and to which its home
// owes nothing. Likewise the home serves only once the lane owes the client nothing. The lane leads
// to the same server as the home (where.go). A single client with its login that has a home gets no
// lane, and its requests do not wait until a lane is open: the home serves meanwhile. A client
// without a home waits for the lane.
//
// Scripts of one or several clients that are ready at about the same time (Ask) go together, as one
// script that runs them all: see Call. The demux gives each its part of the reply.
//
// Replies tell the state of a home (State): transaction, subscriptions, database, and whether
// replies can still be told apart. The pending queue holds what each client is owed, so that the
// proxy can reply itself in turn (Reply) and keep a reply from the client (Do). Nothing is sent
// twice. Requests that are lost with a connection are answered as lost. A push within a reply,
// whose end is unknown then, ends the lane or home before anything of that reply is passed on. Only
// a home that owes nothing but what its client sees goes on, and its replies are not told apart any
// more (demux.scanReply).
//
// When Redis closes a home, the client is closed too, as without the proxy. There are two
// exceptions. A client that goes by a lane and has not used its home for a while (spareAfter) goes
// on without it. A client that has not logged in itself goes on with a new home if the old one was
// in the state of a new connection, and all of Redis was away rather than this connection closed
// alone (home.reportLoss). Redis says something without having been asked only to tell why it
// closes the connection. No reply is taken from that connection any more (errUnasked).
//
// The routes are byHome, byLane, dropped and gone (client.setRoute); a client's end is notEnding,
// WhenAnswered, ClientGone or AtOnce (Pipe.End).
//
// Writing to a client never waits for it: what it leaves unread is kept in memory, then in a file
// (clientWriter, overflow). The goroutine of a home waits before it reads more, so that Redis keeps
// what its client leaves unread. A client that leaves much unread on a lane goes on at home.
//
// Goroutines, and what ends them:
//
//   - connReader, one for each connection that no loop reads: the connection's end. Pipe.Wait waits
//     for a home's, Pool.Close for a lane's.
//   - clientWriter.drain, while a client leaves replies unread: the client's end. Pipe.Wait.
//   - clientWriter.spill, while these are moved to a file: the end of that. Pipe.Wait.
//   - clientWriter.failLocked, while such a file is closed. Pipe.Wait.
//   - lane.writeRest, while Redis does not take what a lane sends: the lane's end.
//   - Pool.open, while a lane is opened: DialTimeout. Pool.Close.
//   - Pool.look, while a new connection shows where it leads: DialTimeout. Pool.Close.
//   - Pool.wantSpares, while a home of a client to come is opened: DialTimeout. Pool.Close.
//   - Pool.openJudge, while a judge is opened: DialTimeout. Pool.Close.
//   - Pool.dropLocked, while such homes are closed that nobody is to have. Pool.Close.
//   - Pool.giveBack, while a home is made as new: DialTimeout. Pool.Close.
//   - door.askLocked, while Redis is asked whether it lets new clients in: DialTimeout. Pool.Close.
//
// Memory for each session: what waits to be sent, unread replies up to overflowMemory, at most
// maxEntries pending entries, and a buffer of at most bufSize while a goroutine reads its home.
//
// The package knows neither locks nor commands, except those that set a connection up.
package passthrough
