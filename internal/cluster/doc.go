// Package cluster presents a Redis Cluster as one connection to one Redis. It knows nothing of
// clients, locks or lanes.
//
// The main types:
//
//	Cluster    what is known of a cluster: its map says which node serves which slot
//	Conn       a net.Conn: Write takes requests, Read returns their replies in order
//	node       a Conn's connection to one node
//	request    made of parts, one for each node that is asked
//	slotOrder  keeps requests for one slot in order while the slot moves
//
// The path of a request:
//
//	Write → requestReader.feed: cut → command.route: by slot → node.push: gather → node.sendNow
//	Read  ← replyQueue: in order ← answers: join, or send again ← node.relay: cut ← node.Consume
//
// The row of a command in package commands says which nodes it goes to; handlers.go names those
// that need code. A Conn opens the connection to a node when it is first needed, or those to all
// masters at once (Options.Early), with what the client has set for it (settings.go). When Write
// returns, each node has been sent as much as it takes without waiting. So requests of several
// Conns run in the order in which they were written. Requests without keys go to the default node,
// always the same master.
//
// A node that answers MOVED, ASK or TRYAGAIN has not run the request. It is sent again, to the node
// that is named or after a delay. Later requests for the same slot are held meanwhile. QUIT, and
// what sets something for the connection, as AUTH (set.go), wait until all earlier requests are
// answered, as does everything behind a command that blocks (holding.go). A request
// that may have run is never sent again: if its node is lost it is answered with Options.Failure,
// and the others go on. The Conn ends if it has lost what can't be restored: a transaction, a
// WATCH, a subscription, CLIENT TRACKING.
//
// The Cluster learns the map from CLUSTER SLOTS, which Follow asks for every second and Conns after
// a redirection or a loss, and from each MOVED.
//
// An event loop reads the nodes (Options.Loops) and then calls the reader of the Conn
// (NotifyReader) in the same iteration. Without loops, goroutines do both.
//
// Goroutines: each node has one that opens the connection (node.start), then one that reads unless
// a loop does (node.Resume, which has an eventloop.Reader read), and one to send what it does not
// take at once (node.send). A Conn can have one that refreshes the map, one that routes what had to
// wait (requestReader.resume), and some that wait for a delay. All end with the Conn: Wait waits
// for them. Follow runs in its caller's goroutine.
//
// Memory of a Conn: requests without an answer up to maxUnanswered, and replies that wait for
// earlier ones up to maxUnread. Replies that are joined to one are held whole, at most maxJoined
// bytes together, and so is a request that can't be streamed (canStream), up to maxHeld for all
// Conns together. Other large requests and replies are streamed.
package cluster
