package exit

// Base is a Controller that has nothing to do.
type Base struct{}

func (Base) Enter() (Result, error)         { return Nothing, nil }
func (Base) Hook() (Result, error)          { return Nothing, nil }
func (Base) Free() (Result, error)          { return Nothing, nil }
func (Base) Announce() (Result, error)      { return Nothing, nil }
func (Base) Transfer() (Result, error)      { return Nothing, nil }
func (Base) Notify(Process) (Result, error) { return Nothing, nil }
func (Base) Gone() (Result, error)          { return Nothing, nil }
