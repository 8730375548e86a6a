# What the scripts of both kinds of package have in common; packaging/build puts it
# before each of them.
# One in /usr/local is not what is installed here.
PATH=/usr/sbin:/usr/bin:/sbin:/bin
unit=paddock-execd.service

say() {
  echo "paddock: $*" >&2
}

# booted tells whether systemd runs here, which it does not in a chroot or a container.
booted() {
  [ -d /run/systemd/system ]
}

# running prints the number of runs of jobs that have a shepherd.
running() {
  count=0
  for file in /var/spool/paddock/*/active_jobs/*/pid; do
    [ -e "$file" ] || continue
    case $(readlink "/proc/$(cat "$file")/exe") in
    */shepherd | */shepherd' (deleted)') count=$((count + 1)) ;;
    esac
  done
  echo $count
}

# prepare makes the account, and the directories that nobody else makes.
prepare() {
  systemd-sysusers paddock.conf
  if command -v systemd-tmpfiles >/dev/null; then
    systemd-tmpfiles --create paddock.conf || true
  fi
}

# renew has the new execd take the place of the one that runs, which goes on if the new
# one would not like what it finds. Jobs notice neither.
renew() {
  systemctl is-active --quiet $unit || return 0
  if ! found=$(execd -t 2>&1); then
    echo "$found" >&2
    say "execd is not restarted, for the reasons above: the old one goes on running, and so do jobs"
    say "once \`execd -t\` is content: systemctl restart $unit"
  elif ! "$@" try-restart $unit; then
    say "execd did not start again, see \`systemctl status $unit\`; jobs go on running"
  fi
}

# left says what goes on when execd is no more.
left() {
  jobs=$(running)
  case $jobs in
  0) ;;
  1) say "1 job goes on running without execd; an execd that is installed again finds it" ;;
  *) say "$jobs jobs go on running without execd; an execd that is installed again finds them" ;;
  esac
}
