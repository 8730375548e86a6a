package job

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// Lend leaves a file of root's to a user, who has the rights of the owner's mode and
// nobody else has any. ours reports whether the file stays root's: what is the user's
// he can make as large as the file system is. Where his group has his name it is his
// alone, as pam_umask(8) has it, and the rights are the group's; elsewhere an access
// control list names him. Without either the file is his.
func Lend(f *os.File, uid, gid int, name, group string, mode fs.FileMode) (ours bool, err error) {
	owner := 0
	switch {
	case alone(uid, name, group):
		mode = shared(mode)
	case uid > 0:
		err := unix.Fsetxattr(int(f.Fd()), aclName, acl(uid, mode), 0)
		if err == nil {
			return true, nil
		}
		if !errors.Is(err, unix.ENOTSUP) {
			return false, fmt.Errorf("cannot lend %s to uid %d: %w", f.Name(), uid, err)
		}
		owner = uid
	}
	return owner == 0, errors.Join(f.Chown(owner, gid), f.Chmod(mode))
}

// Lent returns the owner and the mode that a file has that was lent.
func Lent(path string, uid int, name, group string, mode fs.FileMode) (owner int, as fs.FileMode) {
	if alone(uid, name, group) {
		return 0, shared(mode)
	}
	list := acl(uid, mode)
	has := make([]byte, len(list)+1)
	if n, err := unix.Lgetxattr(path, aclName, has); err == nil && bytes.Equal(has[:n], list) {
		return 0, shared(mode)
	}
	return uid, mode
}

// alone reports whether a user is alone in his group.
func alone(uid int, name, group string) bool { return uid > 0 && name == group }

// shared is a mode in which the group has what the owner has, or in its place a list.
func shared(mode fs.FileMode) fs.FileMode { return mode | mode>>3&0o050 }

// aclName is where the kernel has the access control list of a file.
const aclName = "system.posix_acl_access"

// acl returns a list in the kernel's form, acl(5): root has the rights of mode, and so
// has the user.
func acl(uid int, mode fs.FileMode) []byte {
	const nobody = 1<<32 - 1
	rights := uint16(mode>>6) & 5
	b := binary.LittleEndian.AppendUint32(nil, 2)
	for _, e := range []struct {
		tag, rights uint16
		id          uint32
	}{
		{0x01, uint16(mode>>6) & 7, nobody}, // the owner
		{0x02, rights, uint32(uid)},
		{0x04, 0, nobody},      // the group
		{0x10, rights, nobody}, // the most that the two before have
		{0x20, 0, nobody},      // others
	} {
		b = binary.LittleEndian.AppendUint16(b, e.tag)
		b = binary.LittleEndian.AppendUint16(b, e.rights)
		b = binary.LittleEndian.AppendUint32(b, e.id)
	}
	return b
}
