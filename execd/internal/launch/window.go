package launch

// display is where a job of qsh opens its window; empty: it is none.
func (o *Order) display() string {
	if o.Request.Interactive == nil {
		return ""
	}
	return o.Request.Interactive.Display
}

// args are the arguments of the program: those of a window, or the job's own.
func (o *Order) args(shell string) []string {
	r := o.Request
	display := o.display()
	if display == "" {
		return r.Args
	}
	args := []string{"-display", display, "-n", r.Name}
	return append(append(args, r.Args...), "-e", shell)
}

// starter is the queue's starter method, which a window does without.
func (o *Order) starter() string {
	if o.display() != "" {
		return ""
	}
	return o.Queue.StarterMethod
}
