package passthrough

// What a request may do to the connection that it goes by, as the session says it.

// Effect says what a request's reply does to the state of its connection. Most commands do nothing to it.
type Effect uint8

const (
	NoEffect     Effect = iota
	Multi               // opens a transaction
	Exec                // ends it, unless the reply is an error that leaves it: see aborts
	Discard             // ends it if the reply is OK
	Watch               // the next transaction depends on keys
	Unwatch             // it doesn't any more
	Select              // changes the database
	Auth                // changes the user
	Hello               // changes the protocol, and maybe the user
	Reset               // back to a new connection's state
	Quit                // the upstream answers and closes
	Closes              // the upstream may close instead of answering (SHUTDOWN)
	Subscribe           // each of the six answers with one confirmation a channel
	PSubscribe          //
	SSubscribe          //
	Unsubscribe         //
	PUnsubscribe        //
	SUnsubscribe        //
	Monitor             // status lines follow that answer nothing
	ReplyOn             // CLIENT REPLY; the proxy leaves replies out itself, see Pipe.Relay
	ReplyOff            //
	ReplySkip           //
	Unanswered          // gets no reply but in MULTI and in RESP2's subscribe mode, or if it is refused: REPLCONF ACK and GETACK
	uncertain           // likewise, and elsewhere: a probe behind it tells whether it got one
	Replicate           // SYNC, PSYNC: what follows is not replies any more
	SetName             // CLIENT SETNAME, to Expect.Text
	SetLibName          // CLIENT SETINFO LIB-NAME
	SetLibVer           // CLIENT SETINFO LIB-VER
	Pauses              // CLIENT PAUSE … WRITE, for Expect.Count ms
	Unpauses            // CLIENT UNPAUSE
	TrackingOn          // CLIENT TRACKING
	TrackingOff         //
	Marks               // may leave something on the connection that isn't followed here, and which RESET takes away
	Stays               // likewise, but it stays
	Known               // others may know the connection by its number
	logsIn              // the proxy's own login behind RESET: if it fails, the connection isn't what Identity says
)

func (e Effect) subscribes() bool { return e >= Subscribe && e <= SUnsubscribe }

// Expect describes the reply that one relayed request will get.
type Expect struct {
	Effect Effect
	Count  int       // channels named by a (un)subscribe; 0 is all of them
	Change *Identity // for Select, Auth and Hello: the identity once it has succeeded, see State.merge
	Proto  int       // for a Hello without Change
	Text   *string   // for SetName, SetLibName, SetLibVer, and for Hello if it sets a name
	// Accepted is called when the upstream has answered otherwise than with an error; nil is nothing.
	// QUEUED counts: who may queue a command may run it. It must return at once and call no Pipe.
	Accepted func()
}
