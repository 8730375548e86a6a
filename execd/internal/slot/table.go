package slot

import "slices"

// DeleteRow is the number of the row that has none in the table.
const DeleteRow = 0

// Row is a row of the table of transitions.
type Row struct {
	Number  int
	From    []Place
	To      []Place
	Trigger string
}

// at makes places of a state.
func at(s State, list ...Activity) []Place {
	if list == nil {
		list = allowed[s]
	}
	var places []Place
	for _, a := range list {
		places = append(places, Place{s, a})
	}
	return places
}

var (
	free = slices.Concat(at(Unclaimed), at(Owner)) // where a claim can begin
	gone = at(Preempting)                          // where one ends
)

// Table is all transitions of a slot, by number. Nothing but these happens.
var Table = []Row{
	{1, at(Owner), at(Unclaimed, Idle), "IS_OWNER is false"},
	{2, at(Unclaimed, Idle), at(Owner), "IS_OWNER is true"},
	{3, at(Unclaimed, Idle), at(Unclaimed, Benchmarking), "RunBenchmarks is true"},
	{4, at(Unclaimed, Benchmarking), at(Unclaimed, Idle), "the benchmarks are done"},
	{5, free, at(Claimed, Idle), "a claim is accepted, or fetched work"},
	{6, free, at(Matched), "it is matched to a claimant"},
	{7, at(Unclaimed, Idle), at(Backfill, Idle), "START_BACKFILL is true"},
	{8, at(Matched), at(Owner), "MATCH_TIMEOUT is over, or the claim fails"},
	{9, at(Matched), at(Claimed, Idle), "a claim is accepted"},
	{10, at(Claimed, Idle), gone, "another claim waits, IS_OWNER is true, CLAIM_WORKLIFE is over, or the slot is being drained; the claim is released, its lease is over, the slot is vacated, or no more work is fetched"},
	{11, at(Claimed, Idle), at(Claimed, Busy), "a job is started"},
	{12, at(Claimed, Busy, Cleaning), at(Claimed, Cleaning, Idle), "the job has ended; then its shepherd is gone"},
	{13, at(Claimed, Busy), at(Claimed, Retiring), "PREEMPT is true and WANT_SUSPEND is not, another claim waits, the slot is being drained or vacated, or the claim is released"},
	{14, at(Claimed, Busy), at(Claimed, Suspended), "WANT_SUSPEND and SUSPEND are true, or somebody suspends the job"},
	{15, at(Claimed, Suspended), at(Claimed, Busy), "CONTINUE is true, somebody resumes the job, or the job is gone"},
	{16, at(Claimed, Suspended), at(Claimed, Retiring), "CONTINUE is true while in retirement, or PREEMPT is true for the first time"},
	{17, at(Claimed, Suspended), gone, "the retirement time is over"},
	{18, at(Claimed, Retiring), gone, "the retirement time is over, or the job is gone"},
	{19, at(Claimed, Retiring), at(Claimed, Busy), "the claim that waited is gone, and nothing else wants the slot"},
	{20, at(Claimed, Retiring), at(Claimed, Suspended), "WANT_SUSPEND and SUSPEND are true, or somebody suspends the job"},
	{21, at(Preempting, Vacating), at(Preempting, Killing), "KILL is true, or the vacate time is over"},
	{22, at(Preempting, Vacating), at(Owner), "the job is gone, and no claim waits that the slot accepts"},
	{23, at(Preempting, Vacating), at(Claimed, Idle), "the job is gone, and a claim waits that the slot accepts"},
	{24, at(Preempting, Killing), at(Claimed, Idle), "the job is gone, and a claim waits that the slot accepts"},
	{25, at(Preempting, Killing), at(Owner), "the job is gone, and no claim waits that the slot accepts"},
	{26, at(Backfill, Idle), at(Backfill, Busy), "the backfill job is started"},
	{27, at(Backfill, Busy), at(Backfill, Idle), "the backfill job ended by itself"},
	{28, at(Backfill, Busy), at(Backfill, Killing), "the slot is matched, claimed or vacated, EVICT_BACKFILL is true, or execd shuts down"},
	{29, at(Backfill, Killing), at(Backfill, Idle), "the backfill job and its children are gone"},
	{30, at(Backfill, Idle), at(Owner), "EVICT_BACKFILL is true, the slot is vacated, or execd shuts down"},
	{31, at(Backfill, Idle), at(Claimed, Idle), "a claim was the cause"},
	{32, at(Backfill, Idle), at(Matched), "a match was the cause"},
	{33, at(Drained, Retiring), at(Drained, Idle), "every slot of the host is drained"},
	{34, at(Drained, Retiring), at(Owner), "draining is cancelled"},
	{35, at(Drained, Idle), at(Owner), "draining is cancelled or over"},
	{36, at(Owner), at(Drained, Retiring), "the slot is being drained"},
	{37, at(Unclaimed), at(Drained, Retiring), "the slot is being drained"},
	{DeleteRow, free, at(Deleted), "the slot is dynamic, unless it is broken or work is being fetched for it"},
}
