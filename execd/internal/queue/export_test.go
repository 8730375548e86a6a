package queue

// InUse returns the topology with the cores in small letters that jobs are
// bound to, as m_topology_inuse.
func (c *Cores) InUse() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.marked(nil)
}
