package datagram

import (
	"testing"

	"golang.org/x/sync/errgroup"
	"pgregory.net/rapid"
)

func load(t *testing.T) *Twin {
	t.Helper()
	twin, err := Load()
	if err != nil {
		t.Fatalf("%v (needs root)", err)
	}
	t.Cleanup(func() { _ = twin.Close() })
	return twin
}

// TestNobodyIsToldWhatIsAnothers writes a set's cells on two CPUs while a third reads: a cell that is half one datagram's and half
// another's tells nothing.
func TestNobodyIsToldWhatIsAnothers(t *testing.T) {
	twin := load(t)
	var group errgroup.Group
	const rounds = 30
	for _, work := range []func() error{twin.Write, twin.Write, twin.Read} {
		group.Go(func() error {
			for range rounds {
				if err := work(); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	known, wrong, err := twin.Found()
	if err != nil {
		t.Fatal(err)
	}
	if known == 0 || wrong != 0 {
		t.Errorf("of %d datagrams that were known %d were told what is another's", known, wrong)
	}
}

// TestWhoHasMostMakesWay holds the choice of a cell against what it is said to be.
func TestWhoHasMostMakesWay(t *testing.T) {
	twin := load(t)
	life, err := twin.Life()
	if err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(t *rapid.T) {
		now := rapid.Uint32().Draw(t, "now")
		least, oldest := uint32(1), life // the set is full
		if rapid.Bool().Draw(t, "some are free or too old") {
			least, oldest = 0, life+life/10
		}
		var set twinDatagramSet
		for i := range set.Cells {
			set.Cells[i].Owner = rapid.Uint32Range(least, 4).Draw(t, "owner")
			set.Cells[i].Seen = now + 1 - rapid.Uint32Range(0, oldest).Draw(t, "age")
			set.Cells[i].Words = [2]uint64{rapid.Uint64().Draw(t, "told"), 7}
			set.Cells[i].Check = rapid.Uint64Range(1, 200).Draw(t, "hash") ^ set.Cells[i].Words[0] ^ 7
		}
		hash, owner := rapid.Uint64Range(1, 200).Draw(t, "hash"), rapid.Uint32Range(1, 5).Draw(t, "newcomer's owner")
		got, err := twin.Place(&set, hash, owner, now)
		if err != nil {
			t.Fatal(err)
		}
		if why := refused(&set, got, hash, owner, now, life); why != "" {
			t.Fatalf("cell %d of %+v for one of %d at %d: %s", got, set, owner, now, why)
		}
	})
}

// refused says why a datagram may not get the cell; "" when it may.
func refused(set *twinDatagramSet, got uint32, hash uint64, owner, now, life uint32) string {
	free := func(i int) bool {
		age := int32(now - set.Cells[i].Seen)
		return set.Cells[i].Owner == 0 || age > int32(life) || age < -int32(life)
	}
	cells, somebodyFree := map[uint32]int{owner: 1}, false
	for i, cell := range set.Cells {
		if cell.Owner != 0 && cell.Check^cell.Words[0]^cell.Words[1] == hash {
			if int(got) != i {
				return "it has one already"
			}
			return ""
		}
		cells[cell.Owner]++
		somebodyFree = somebodyFree || free(i)
	}
	if somebodyFree {
		if !free(int(got)) {
			return "another one is free"
		}
		return ""
	}
	loser := set.Cells[got]
	for _, cell := range set.Cells {
		switch {
		case cells[cell.Owner] > cells[loser.Owner]:
			return "somebody else has more"
		case cells[cell.Owner] == cells[loser.Owner] && cell.Owner == owner && loser.Owner != owner:
			return "the newcomer's owner has as many"
		case cells[cell.Owner] == cells[loser.Owner] && (cell.Owner == owner) == (loser.Owner == owner) && now-cell.Seen+life > now-loser.Seen+life:
			return "another one is older"
		}
	}
	return ""
}
