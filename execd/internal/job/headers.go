package job

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"time"
	"unique"

	"paddock/spool"
)

// headers decodes the headers of records, one after the other. Of a hundred thousand jobs many
// ask for the same but for their arguments, and many headers are equal but for that, their number
// and their time: what was decoded before is found by its bytes.
type headers struct {
	requests map[string]*request
	others   map[string]*digest // without a request, of job 0
	size     int                // bytes of the keys of both
	header   digest             // of the last
	request  []byte             // of it, but for its arguments
	rest     []byte             // what else it has
}

// request is what a request comes to.
type request struct {
	kept
	terms *Terms
}

// maxHeaders bounds the bytes by which headers are known.
const maxHeaders = 1 << 20

// decode decodes a header, and returns its terms too. It is good until the next call.
func (hs *headers) decode(line []byte) (*digest, *Terms, error) {
	h := &hs.header
	number, submitted, ok := hs.cut(line)
	if ok {
		r, other := hs.requests[string(hs.request)], hs.others[string(hs.rest)]
		if r != nil && other != nil {
			*h = *other
			h.Request, h.Job, h.Submitted = r.kept, number, submitted
			return h, r.terms, nil
		}
	}
	*h = digest{}
	if err := json.Unmarshal(line, h); err != nil || h.Format != Format {
		// Another format may have other types elsewhere in the line.
		var probe struct {
			Format int `json:"format"`
		}
		if probeErr := json.Unmarshal(line, &probe); probeErr == nil && probe.Format != Format {
			return nil, nil, fmt.Errorf("%w: the record has %d, this execd reads %d", spool.ErrFormat, probe.Format, Format)
		}
		return nil, nil, fmt.Errorf("line 1 is not a header: %v", err)
	}
	if err := h.check(h.Request.Tasks); err != nil {
		return nil, nil, fmt.Errorf("line 1 is not a header: %v", err)
	}
	for _, u := range h.Unmet {
		if _, valid := parseTasks(u.Tasks, h.Request.Tasks); !valid {
			return nil, nil, fmt.Errorf("line 1 is not a header: tasks %q are none of the job's", u.Tasks)
		}
	}
	if only := h.Request.Only; only != "" {
		if _, valid := parseTasks(only, h.Request.Tasks); !valid {
			return nil, nil, fmt.Errorf("line 1 is not a header: only %q", only)
		}
	}
	share(h)
	terms := h.Request.terms().common()
	if ok && number == h.Job && submitted.Equal(h.Submitted) {
		hs.remember(terms)
	}
	return h, terms, nil
}

// remember takes in what was decoded of the last header, unless it has what jobs do not share.
func (hs *headers) remember(terms *Terms) {
	h := &hs.header
	if h.Request.Work != nil || h.Request.Interactive != nil || h.links.count()+len(h.Unmet) > 0 {
		return
	}
	size := len(hs.request) + len(hs.rest)
	if hs.size += size; hs.requests == nil || hs.size > maxHeaders {
		hs.requests, hs.others, hs.size = map[string]*request{}, map[string]*digest{}, size
	}
	other := *h
	other.Request, other.Job, other.Submitted = kept{}, 0, time.Time{}
	hs.requests[string(hs.request)], hs.others[string(hs.rest)] = &request{h.Request, terms}, &other
}

// cut takes a header apart: into number, time, hs.request and hs.rest. One that is not as execd
// writes it is not ok, and may be in order all the same.
func (hs *headers) cut(line []byte) (number int, submitted time.Time, ok bool) {
	hs.rest = append(hs.rest[:0], line...)
	begin, end := member(line, `"request":`)
	hs.request, hs.rest = append(hs.request[:0], line[begin:end]...), slices.Delete(hs.rest, begin, end)
	if from, to := member(hs.request, `"args":`); json.Valid(hs.request[from:to]) {
		hs.request = slices.Delete(hs.request, from, to)
	}
	begin, end = member(hs.rest, `"job":`)
	number, err := strconv.Atoi(string(hs.rest[begin:end]))
	if err != nil || number < 1 || len(hs.request) == 0 {
		return 0, submitted, false
	}
	hs.rest = slices.Delete(hs.rest, begin, end)
	begin, end = member(hs.rest, `"submitted":`)
	err = submitted.UnmarshalJSON(hs.rest[begin:end])
	hs.rest = slices.Delete(hs.rest, begin, end)
	return number, submitted, err == nil
}

// member returns where the value of a key of an object begins and ends; 0, 0: it is not there
// once. No string has the key in it, for quotes are escaped there.
func member(object []byte, key string) (begin, end int) {
	begin = bytes.Index(object, []byte(key)) + len(key)
	if begin < len(key) || bytes.Contains(object[begin:], []byte(key)) {
		return 0, 0
	}
	depth := 0
	for end = begin; end < len(object); end++ {
		switch object[end] {
		case '{', '[':
			depth++
		case ',', '}', ']':
			if depth == 0 {
				return begin, end
			}
			if object[end] != ',' {
				depth--
			}
		case '"':
			for end++; end < len(object) && object[end] != '"'; end++ {
				if object[end] == '\\' {
					end++
				}
			}
		}
	}
	return 0, 0
}

// share has what most jobs have in common in memory once.
func share(h *digest) {
	r := &h.Request
	for _, text := range []*string{(*string)(&r.Name), (*string)(&r.Account), &r.Mail} {
		*text = unique.Make(*text).Value()
	}
}
