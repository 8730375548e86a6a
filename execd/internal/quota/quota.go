// Package quota limits what may be written below a directory, by the project quotas of
// ext4 and XFS (quotactl(2)): each file below has the number of a project, and the file
// system counts what a project uses. Launch and sandbox use it; it imports nothing of ours.
package quota

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// What <linux/quota.h>, <linux/dqblk_xfs.h> and <linux/fs.h> have and package
// unix lacks.
const (
	project       = 2 // PRJQUOTA
	cmdGet        = 0x800007
	cmdSet        = 0x800008
	cmdState      = 'X'<<8 | 8 // Q_XGETQSTATV
	stateVersion  = 1
	stateSize     = 256 // more than struct fs_quota_statv has
	enforced      = 1 << 5
	validLimits   = 1 // QIF_BLIMITS
	block         = 1024
	getAttributes = 0x801c581f // FS_IOC_FSGETXATTR
	setAttributes = 0x401c5820 // FS_IOC_FSSETXATTR
	inherit       = 0x200      // FS_XFLAG_PROJINHERIT
)

// record is struct if_dqblk.
type record struct {
	hard, soft, space          uint64
	inodeHard, inodeSoft, used uint64
	spaceTime, inodeTime       uint64
	valid                      uint32
	_                          uint32
}

// attributes is struct fsxattr.
type attributes struct {
	flags, extent, extents, project, cow uint32
	_                                    [8]byte
}

// Available says why the file system of a directory cannot limit projects; nil when it
// can.
func Available(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	var a attributes
	if err := ioctl(f, getAttributes, unsafe.Pointer(&a)); err != nil {
		return errors.New("its file system has no projects")
	}
	state := make([]byte, stateSize)
	state[0] = stateVersion
	if err := quotactl(f, cmdState, 0, unsafe.Pointer(&state[0])); err != nil {
		return fmt.Errorf("no quotas are on in its file system: %w", err)
	}
	if binary.NativeEndian.Uint16(state[2:])&enforced == 0 {
		return errors.New("no project quotas are enforced in its file system, which takes the mount option prjquota")
	}
	return nil
}

// Assign puts an empty directory, and all that will be below it, into a project.
func Assign(dir *os.File, id uint32) error {
	var a attributes
	err := ioctl(dir, getAttributes, unsafe.Pointer(&a))
	if err == nil {
		a.project, a.flags = id, a.flags|inherit
		err = ioctl(dir, setAttributes, unsafe.Pointer(&a))
	}
	if err != nil {
		return fmt.Errorf("cannot assign %s to project %d: %w", dir.Name(), id, err)
	}
	return nil
}

// Limit sets how many bytes a project may use in the file system of a directory; 0: no
// limit.
func Limit(dir *os.File, id uint32, bytes uint64) error {
	r := record{hard: (bytes + block - 1) / block, valid: validLimits}
	r.soft = r.hard
	if err := quotactl(dir, cmdSet, id, unsafe.Pointer(&r)); err != nil {
		return fmt.Errorf("cannot limit project %d in %s: %w", id, dir.Name(), err)
	}
	return nil
}

// Used returns how many bytes a project uses in the file system of a directory.
func Used(dir *os.File, id uint32) (uint64, error) {
	var r record
	err := quotactl(dir, cmdGet, id, unsafe.Pointer(&r))
	if errors.Is(err, unix.ENOENT) { // XFS has no record of a project without files
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("cannot see what project %d has in %s: %w", id, dir.Name(), err)
	}
	return r.space, nil
}

// quotactl calls quotactl_fd(2) for the file system that a directory is in.
func quotactl(dir *os.File, cmd uintptr, id uint32, data unsafe.Pointer) error {
	cmd = cmd<<8 | project
	_, _, errno := unix.Syscall6(unix.SYS_QUOTACTL_FD, dir.Fd(), cmd, uintptr(id), uintptr(data), 0, 0)
	if errno == unix.ENOSYS { // Linux before 5.14, or a file system without quotas
		var st unix.Stat_t
		if err := unix.Fstat(int(dir.Fd()), &st); err != nil {
			return err
		}
		device, err := unix.BytePtrFromString(fmt.Sprintf("/dev/block/%d:%d", unix.Major(st.Dev), unix.Minor(st.Dev)))
		if err != nil {
			return err
		}
		if _, _, old := unix.Syscall6(unix.SYS_QUOTACTL, cmd, uintptr(unsafe.Pointer(device)), uintptr(id), uintptr(data), 0, 0); old != unix.ENOENT {
			errno = old
		}
	}
	if errno != 0 {
		return errno
	}
	return nil
}

func ioctl(dir *os.File, request uintptr, data unsafe.Pointer) error {
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, dir.Fd(), request, uintptr(data)); errno != 0 {
		return errno
	}
	return nil
}
