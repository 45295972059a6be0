package commands

// Effect says how a request's reply changes the state of its connection. Most change nothing.
type Effect uint8

const (
	NoEffect     Effect = iota
	Multi               // opens a transaction
	Exec                // ends it, unless the reply is an error that leaves it
	Discard             // ends it if the reply is OK
	Watch               // the next transaction depends on keys
	Unwatch             // it doesn't any more
	Select              // changes the database
	Auth                // changes the user
	Hello               // changes the protocol, and maybe the user
	Reset               // back to a new connection's state
	Quit                // the upstream answers and closes
	Closes              // the upstream can close instead of answering (SHUTDOWN)
	Subscribe           // each of the six answers with one confirmation a channel
	PSubscribe          //
	SSubscribe          //
	Unsubscribe         //
	PUnsubscribe        //
	SUnsubscribe        //
	Monitor             // status lines follow that answer nothing
	ReplyOn             // CLIENT REPLY; the proxy leaves replies out itself
	ReplyOff            //
	ReplySkip           //
	Unanswered          // gets a reply only in MULTI, in RESP2's subscribe mode, or if refused
	Replicate           // SYNC, PSYNC: what follows is not replies any more
	SetName             // CLIENT SETNAME
	SetLibName          // CLIENT SETINFO LIB-NAME
	SetLibVer           // CLIENT SETINFO LIB-VER
	Pauses              // CLIENT PAUSE … WRITE
	Unpauses            // CLIENT UNPAUSE
	TrackingOn          // CLIENT TRACKING
	TrackingOff         //
	UnknownState        // can leave something untracked on the connection, up to RESET
	StickyState         // likewise, but it stays
	KnownID             // others can know the connection by its number
	Effects             // how many there are
)

// Subscribes reports whether the Effect is one of the six whose requests are answered with
// confirmations.
func (e Effect) Subscribes() bool { return e >= Subscribe && e <= SUnsubscribe }

// Adds reports whether the Effect is one of the three that subscribe.
func (e Effect) Adds() bool { return e >= Subscribe && e <= SSubscribe }
