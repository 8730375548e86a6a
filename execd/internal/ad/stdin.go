package ad

import "paddock/classad"

// separator stands between the two ads that a hook reads.
const separator = "-----\n"

// Stdin returns what a hook reads: the ad of a job, a line of five hyphens, and the ad of
// a slot, both in old syntax and without their secrets. Either may be nil: then the
// other stands alone.
func Stdin(job, slot *classad.Ad) []byte { return stdin(job, slot, (*classad.Ad).OldString) }

// SecretStdin is Stdin with the secrets of the slot: for hooks that are to have
// the id of a claim, with which they may do what they like with the slot.
func SecretStdin(job, slot *classad.Ad) []byte { return stdin(job, slot, (*classad.Ad).SecretString) }

func stdin(job, slot *classad.Ad, text func(*classad.Ad) string) []byte {
	var b []byte
	if job != nil {
		b = append(b, job.OldString()...)
	}
	if job != nil && slot != nil {
		b = append(b, separator...)
	}
	if slot != nil {
		b = append(b, text(slot)...)
	}
	return b
}

// AppendStdin appends the ad of a job to what a hook reads of several.
func AppendStdin(b []byte, job *classad.Ad) []byte {
	if len(b) > 0 {
		b = append(b, separator...)
	}
	return append(b, job.OldString()...)
}
