package accounting

import (
	"bufio"
	"bytes"
	"cmp"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// The index of an accounting file tells which of its parts have no line of a job, so that who
// looks for one need not read them. execd writes it beside the file, a line for each part; it
// may be removed at any time. A part that was changed is noticed by the bytes at its end, as are
// all behind the place of a change, and then no part is skipped.

// IndexPath returns where the index of an accounting file is.
func IndexPath(file string) string { return file + ".index" }

// PartSize is about how many bytes of the file are one part.
const PartSize = 1 << 20

// Part is whole lines of an accounting file, from Begin to End.
type Part struct {
	Begin, End int64
	Lines      int
	sum        uint32     // of the last bytes
	jobs       []jobRange // that have lines; nil: it is not known
}

// jobRange is the numbers of jobs from first to last.
type jobRange struct{ first, last int }

// maxRanges bounds the ranges of a part.
const maxRanges = 16

// sumSize is how many bytes at the end of a part are looked at again.
const sumSize = 64

func sumOf(end []byte) uint32 { return crc32.ChecksumIEEE(end[max(len(end)-sumSize, 0):]) }

// NewPart returns the part that these lines are.
func NewPart(begin int64, lines []byte) Part {
	p := Part{Begin: begin, End: begin + int64(len(lines)), sum: sumOf(lines)}
	var numbers []int
	known := true
	for line := range bytes.Lines(lines) {
		if p.Lines++; len(line) < 2 || line[0] == '#' {
			continue
		}
		n, err := strconv.Atoi(string(Field(line, FieldJobNumber)))
		if known = known && err == nil && n >= 0; len(numbers) == 0 || numbers[len(numbers)-1] != n {
			numbers = append(numbers, n)
		}
	}
	if known {
		slices.Sort(numbers)
		p.jobs = rangesOf(slices.Compact(numbers))
	}
	return p
}

// rangesOf returns at most maxRanges ranges that have all of the numbers, which are in order:
// they are apart where the most numbers are missing.
func rangesOf(numbers []int) []jobRange {
	ranges := []jobRange{}
	for _, n := range numbers {
		if last := len(ranges) - 1; last >= 0 && ranges[last].last == n-1 {
			ranges[last].last = n
		} else {
			ranges = append(ranges, jobRange{n, n})
		}
	}
	if len(ranges) <= maxRanges {
		return ranges
	}
	gap := func(i int) int { return ranges[i].first - ranges[i-1].last }
	order := make([]int, 0, len(ranges)-1)
	for i := 1; i < len(ranges); i++ {
		order = append(order, i)
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(gap(b), gap(a)) })
	begins := append([]int{0}, order[:maxRanges-1]...)
	slices.Sort(begins)
	joined := make([]jobRange, 0, maxRanges)
	for k, i := range begins {
		end := len(ranges)
		if k+1 < len(begins) {
			end = begins[k+1]
		}
		joined = append(joined, jobRange{ranges[i].first, ranges[end-1].last})
	}
	return joined
}

// MayHave reports whether a line of the job may be in the part.
func (p *Part) MayHave(job int) bool {
	return p.jobs == nil || slices.ContainsFunc(p.jobs, func(r jobRange) bool { return r.first <= job && job <= r.last })
}

// IndexHeading is the first line of the index of a file, which tells its inode.
func IndexHeading(file fs.FileInfo) string {
	return fmt.Sprintf("# Paddock index 1 of inode %d: end, lines, sum, jobs\n", file.Sys().(*syscall.Stat_t).Ino)
}

// Append appends the line of the part in an index.
func (p *Part) Append(b []byte) []byte {
	b = fmt.Appendf(b, "%d %d %08x ", p.End, p.Lines, p.sum)
	if p.jobs == nil {
		return append(b, "*\n"...)
	}
	for i, r := range p.jobs {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, int64(r.first), 10)
		if r.last > r.first {
			b = strconv.AppendInt(append(b, '-'), int64(r.last), 10)
		}
	}
	return append(b, '\n')
}

// parsePart reads what Append wrote.
func parsePart(line string, begin int64) (p Part, ok bool) {
	fields := strings.Split(line, " ")
	if len(fields) != 4 {
		return p, false
	}
	end, err1 := strconv.ParseInt(fields[0], 10, 64)
	lines, err2 := strconv.Atoi(fields[1])
	sum, err3 := strconv.ParseUint(fields[2], 16, 32)
	if err := cmp.Or(err1, err2, err3); err != nil || end <= begin || lines < 0 {
		return p, false
	}
	p = Part{Begin: begin, End: end, Lines: lines, sum: uint32(sum)}
	if fields[3] == "*" {
		return p, true
	}
	p.jobs = []jobRange{}
	if fields[3] == "" { // comments alone
		return p, true
	}
	for text := range strings.SplitSeq(fields[3], ",") {
		first, last, two := strings.Cut(text, "-")
		if !two {
			last = first
		}
		a, err1 := strconv.Atoi(first)
		b, err2 := strconv.Atoi(last)
		if err1 != nil || err2 != nil || len(p.jobs) == maxRanges {
			return p, false
		}
		p.jobs = append(p.jobs, jobRange{a, b})
	}
	return p, true
}

// Parts returns the parts of an accounting file that its index knows, from the beginning on; nil
// where there is no index, or it is not of what the file has now, or it is of somebody else.
func Parts(f *os.File) (parts []Part) {
	in, err := os.OpenFile(IndexPath(f.Name()), os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return nil
	}
	defer in.Close()
	of, err1 := f.Stat()
	is, err2 := in.Stat()
	if err1 != nil || err2 != nil || !is.Mode().IsRegular() || is.Mode().Perm()&0o022 != 0 {
		return nil
	}
	file, index := of.Sys().(*syscall.Stat_t), is.Sys().(*syscall.Stat_t)
	r := bufio.NewReader(in)
	if heading, err := r.ReadString('\n'); err != nil || index.Uid != file.Uid || heading != IndexHeading(of) {
		return nil
	}
	begin := int64(0)
	var last [sumSize]byte
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			return parts // a last line is still being written
		}
		p, ok := parsePart(strings.TrimSuffix(line, "\n"), begin)
		if !ok || p.End > of.Size() {
			return nil
		}
		end := last[:min(p.End-p.Begin, sumSize)]
		if _, err := f.ReadAt(end, p.End-int64(len(end))); err != nil || sumOf(end) != p.sum {
			return nil
		}
		parts, begin = append(parts, p), p.End
	}
}

// Span is a piece of an accounting file behind a number of lines.
type Span struct {
	io.Reader
	Lines int
}

// Spans returns what has to be read of the first bytes of an accounting file, size of them, to
// find all lines of a job.
func Spans(f *os.File, size int64, job int) []Span {
	var spans []Span
	begin, before, lines := int64(0), 0, 0 // of what is read next, with the lines before it
	read := func(end int64) {
		if end > begin {
			spans = append(spans, Span{io.NewSectionReader(f, begin, end-begin), before})
		}
	}
	for _, p := range Parts(f) {
		if lines += p.Lines; p.End <= size && !p.MayHave(job) {
			read(p.Begin)
			begin, before = p.End, lines
		}
	}
	read(size)
	return spans
}
