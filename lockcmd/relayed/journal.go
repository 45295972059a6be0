package relayed

import (
	"time"

	"lockproxy/internal/foreign"
	"lockproxy/internal/journal"
	"lockproxy/internal/monotonic"
	"lockproxy/internal/names"
)

// foreignJournal tells the journal of the locks of foreign clients.
type foreignJournal struct{ *journal.Journal }

func foreignClient(c foreign.Client) journal.Holder {
	return journal.Holder{Owner: c.Name, Client: c.Addr}
}

func (j foreignJournal) Taken(id names.Lock, by foreign.Client, asked, at time.Time) {
	j.Acquired(id, foreignClient(by), at.Sub(asked), monotonic.Of(at))
}

func (j foreignJournal) Tried(id names.Lock, since, last, now time.Time) {
	j.Journal.Tried(id, monotonic.Of(since), monotonic.Of(last), monotonic.Of(now))
}

func (j foreignJournal) Forgotten(id names.Lock, since, now time.Time) {
	j.Journal.Forgotten(id, monotonic.Of(since), monotonic.Of(now))
}

func (j foreignJournal) Ended(
	id names.Lock, had foreign.Client, expired bool, since, at time.Time,
) {
	kind := journal.Released
	if expired {
		kind = journal.Expired
	}
	j.Journal.Ended(kind, id, foreignClient(had), journal.Acquisition{},
		monotonic.Of(since), monotonic.Of(at))
}
