// Package slot decides what a slot of this host does and why: it has the states and
// activities, the table of transitions, the policy of the owner, and the clocks of
// retirement, vacating and killing. They are those of HTCondor, so that policies written
// for HTCondor mean the same here.
//
// It is pure. A Machine gets events with the time, and returns actions; it has no clock,
// goroutine, lock or file. Next is zero unless something depends on time. Package claim
// drives it, and fetch asks it what to do with work; it imports classad and no package of
// execd.
//
// slot(7) describes it, with a table that is generated from the one here.
package slot

//go:generate go test -run ^TestPage$ -update .
