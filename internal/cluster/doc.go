// Package cluster presents a Redis Cluster as one Redis, at the level of a connection: a Conn is written
// requests and read replies, in order, as a TCP connection to one Redis would be. It knows nothing of
// clients, locks or lanes.
//
//	Write  ->  cut into requests  ->  route: by the slot of the keys,  ->  node: gather, one write
//	                                  to all masters, in parts, ...
//	Read   <-  queue of requests, in  <-  answer: join, follow         <-  node: cut into replies
//	           the client's order         MOVED and ASK
//
// Where a command goes is in its row of package commands; for some there is code here (waysByName).
//
// A Conn has a connection of its own to each node that it needs, opened when it is first needed.
// Options.Dial makes it, and sets it up as the Conn's user has set up the Conn. Nodes work in parallel;
// replies wait in the queue for those before them. Closing the Conn closes them all, so a client that is
// gone blocks nothing.
//
// A request that a node has not run, because its keys are elsewhere or on their way, is sent again, to
// where the node says, without overtaking: what the same slot is asked meanwhile is held. A request that
// may have run is never sent again: if its node is lost it is answered with what Options.Failure says,
// and the others go on, unless the Conn has lost something with the node that it can't have again (a
// transaction, a subscription): then it ends.
//
// Which node serves which slot is known to the Cluster, which all Conns share. It learns it from CLUSTER
// SLOTS, asked when there is a reason to and every lookEvery, and from each MOVED.
//
// Memory, for each Conn: maxKept of requests without an answer, and maxBuffered of replies that wait for
// earlier ones. A reply that is put together from several is held whole, at most maxJoined from each node.
// Large single requests and replies stream.
package cluster
