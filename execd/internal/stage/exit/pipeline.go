package exit

// Controller is who a job came from, as far as its end goes. Each of its steps
// may be called again as long as it is not over, and is never called again when
// it is. The error of a step says why it failed.
type Controller interface {
	// Enter is called once in the life of execd, before anything else: it
	// cancels the timers of a job that runs, and fixes what will be said of the
	// end, so that all retries say the same.
	Enter() (Result, error)
	// Hook runs the hook for the end of a job.
	Hook() (Result, error)
	// Free notes that the job no longer needs processors and memory.
	Free() (Result, error)
	// Announce tells the controller of the job that its output is about to come.
	Announce() (Result, error)
	// Transfer moves the output of the job to where it belongs.
	Transfer() (Result, error)
	// Notify reports the end of a process that has to be reported.
	Notify(p Process) (Result, error)
	// Gone is called when everything is reported, and ends the activation.
	Gone() (Result, error)
}

// The names of the steps, as errors and records have them.
const (
	StepEnter    = "enter"
	StepHook     = "exit hook"
	StepFree     = "release"
	StepAnnounce = "output state"
	StepTransfer = "transfer"
	StepNotify   = "notify"
	StepGone     = "clean"
)

// Pipeline leads one activation from the last end of its processes to its own.
type Pipeline struct {
	List
	Marks
	Controller Controller
}

// AllDone is the only way in, for the first time and for every event that may
// have unblocked a step. It does nothing while a process is active.
func (p *Pipeline) AllDone() (Result, error) {
	if !p.Idle() {
		return InProgress, nil
	}
	c := p.Controller
	if result, err := p.Run([]Step{
		{StepEnter, c.Enter},
		{StepHook, c.Hook},
		{StepFree, c.Free},
		{StepAnnounce, c.Announce},
		{StepTransfer, c.Transfer},
	}); !result.Over() {
		return result, err
	}
	for _, process := range p.Reaped() {
		// The error gets no name of the process: its steps have one.
		if result, err := process.Exit(c); !result.Over() {
			return result, err
		}
		p.remove(process)
	}
	return p.Run([]Step{{StepGone, c.Gone}})
}
