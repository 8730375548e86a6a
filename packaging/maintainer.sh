# What the scripts of both kinds of package have in common; packaging/build puts it
# before each of them.
# One in /usr/local is not what is installed here.
PATH=/usr/sbin:/usr/bin:/sbin:/bin
unit=paddock-execd.service
web=paddock-web.service # runs where an administrator wants it

say() {
  echo "paddock: $*" >&2
}

# booted tells whether systemd runs here, which it does not in a chroot or a container.
booted() {
  [ -d /run/systemd/system ]
}

# processes prints those of the process ids in files that are a program's, and not
# another's that has the number by now.
processes() {
  program=$1
  shift
  for file; do
    [ -e "$file" ] || continue
    pid=$(cat "$file")
    case $(readlink "/proc/$pid/exe") in
    */"$program" | */"$program (deleted)") echo "$pid" ;;
    esac
  done
}

# running prints the number of runs of jobs that have a shepherd.
running() {
  processes shepherd /var/spool/paddock/*/active_jobs/*/pid | wc -l
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
  "$@" try-restart $web || say "the page did not start again, see \`systemctl status $web\`"
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
