package daemon

import (
	"paddock/classad"
	"paddock/execd/internal/job"
	"paddock/execd/internal/peer"
	"paddock/execd/internal/shadow"
)

// buildShadows has what waits here offered to other hosts. The queue is made after it.
func (d *daemon) buildShadows(hosts *peer.Clients) {
	d.shadows = shadow.New(shadow.Execd{
		Host: &d.stages.Host, Root: d.root, Streams: d.stages.Streams, On: hosts.Of, Peers: d.watch.Status, Domain: d.domain,
		JobAd: func(j *job.Job) *classad.Ad { return d.slotAds.jobAd(j, nil, nil) },
	})
	d.stages.Away, d.watch.Changed = d.shadows, d.shadows.HostChanged
}

// domain returns the word for the file systems that this host shares with others; empty:
// it shares none.
func (d *daemon) domain() string {
	if words := d.config.Current().Knobs.Words("FILESYSTEM_DOMAIN"); len(words) > 0 {
		return words[0]
	}
	return ""
}
