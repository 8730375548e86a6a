# bash completion of the client commands and execd.
# Written by `go generate ./qsub/...` from the table of options.

_paddock_jobs() { qstat -u '*' 2>/dev/null | awk 'NR > 2 && !seen[$1]++ {print $1}'; }
_paddock_queues() { qconf -sql 2>/dev/null; }
_paddock_pes() { qconf -spl 2>/dev/null; }

_paddock() {
  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} words=
  COMPREPLY=()
  case ${COMP_WORDS[0]##*/}:$prev in
  qsub:-stageout_to|qsub:-wd) compopt -o filenames; mapfile -t COMPREPLY < <(compgen -d -- "$cur"); return ;;
  qsub:-@|qsub:-e|qsub:-i|qsub:-o|qsub:-S|qsub:-stagein) compopt -o filenames; mapfile -t COMPREPLY < <(compgen -f -- "$cur"); return ;;
  qsub:-v) mapfile -t COMPREPLY < <(compgen -e -- "$cur"); return ;;
  qsub:-a|qsub:-ac|qsub:-attr|qsub:-A|qsub:-binding|qsub:-ckpt|qsub:-C|qsub:-dc|qsub:-l|qsub:-M|qsub:-N|qsub:-p|qsub:-P|qsub:-sc|qsub:-stageout|qsub:-t|qsub:-tc|qsub:-when_out) return ;;
  qsub:-hold_jid|qsub:-hold_jid_ad|qsub:-hold_jid_ok|qsub:-hold_jid_ad_ok) words=" $(_paddock_jobs)" ;;
  qsub:-pe) words=" $(_paddock_pes)" ;;
  qsub:-masterq|qsub:-q) words=" $(_paddock_queues)" ;;
  qsub:-m) words='b e a s n' ;;
  qsub:-w) words='e w n p v' ;;
  qsub:-c) words='n s m x r' ;;
  qsub:-b|qsub:-j|qsub:-now|qsub:-pty|qsub:-r|qsub:-R|qsub:-sandbox|qsub:-shell|qsub:-sync) words='y n' ;;
  qstat:-j) [[ $cur == -* ]] || words=" $(_paddock_jobs)" ;;
  qstat:-l|qstat:-u|qstat:-U) return ;;
  qstat:-pe) words=" $(_paddock_pes)" ;;
  qstat:-q) words=" $(_paddock_queues)" ;;
  qstat:-explain) words='a c A E' ;;
  qstat:-qs) words='a c d o s u A C D E S' ;;
  qstat:-g) words='c d t' ;;
  qstat:-s) words='p r s z h a' ;;
  qdel:-t|qdel:-u) return ;;
  qhold:-t|qhold:-u) return ;;
  qhold:-h) words='u o s' ;;
  qrls:-t|qrls:-u) return ;;
  qrls:-h) words='u o s' ;;
  qmod:-t) return ;;
  qmod:-c|qmod:-cj|qmod:-r|qmod:-rj|qmod:-s|qmod:-sj|qmod:-us|qmod:-usj) words=" $(_paddock_jobs)" ;;
  qmod:-cq|qmod:-d|qmod:-e|qmod:-rq|qmod:-sq|qmod:-usq) words=" $(_paddock_queues)" ;;
  qhost:-h|qhost:-l|qhost:-u) return ;;
  qselect:-l|qselect:-U) return ;;
  qselect:-pe) words=" $(_paddock_pes)" ;;
  qselect:-q) words=" $(_paddock_queues)" ;;
  qselect:-qs) words='a c d o s u A C D E S' ;;
  qconf:-aq|qconf:-sq) [[ $cur == -* ]] || words=" $(_paddock_queues)" ;;
  qconf:-Ace|qconf:-Ackpt|qconf:-Ae|qconf:-Ahgrp|qconf:-Ap|qconf:-Aprj|qconf:-Aq|qconf:-Au|qconf:-Mc|qconf:-Mce|qconf:-Mckpt|qconf:-Mconf|qconf:-Me|qconf:-Mhgrp|qconf:-Mp|qconf:-Mprj|qconf:-Mq|qconf:-Msconf|qconf:-Mu) compopt -o filenames; mapfile -t COMPREPLY < <(compgen -f -- "$cur"); return ;;
  qconf:-aattr|qconf:-Aattr|qconf:-ace|qconf:-ackpt|qconf:-ah|qconf:-ahgrp|qconf:-am|qconf:-ao|qconf:-aprj|qconf:-as|qconf:-au|qconf:-dattr|qconf:-Dattr|qconf:-dcal|qconf:-dce|qconf:-dckpt|qconf:-de|qconf:-dhgrp|qconf:-dm|qconf:-do|qconf:-dprj|qconf:-drqs|qconf:-du|qconf:-dul|qconf:-duser|qconf:-mattr|qconf:-Mattr|qconf:-mce|qconf:-mckpt|qconf:-me|qconf:-mhgrp|qconf:-mprj|qconf:-mu|qconf:-rattr|qconf:-Rattr|qconf:-rsstnode|qconf:-scal|qconf:-sce|qconf:-sckpt|qconf:-se|qconf:-shgrp|qconf:-shgrp_resolved|qconf:-shgrp_tree|qconf:-sobjl|qconf:-sprj|qconf:-sstnode|qconf:-su|qconf:-suser) return ;;
  qconf:-ap|qconf:-dp|qconf:-mp|qconf:-sp) words=" $(_paddock_pes)" ;;
  qconf:-dq|qconf:-mq|qconf:-purge) words=" $(_paddock_queues)" ;;
  qacct:-pe) [[ $cur == -* ]] || words=" $(_paddock_pes)" ;;
  qacct:-q) [[ $cur == -* ]] || words=" $(_paddock_queues)" ;;
  qacct:-f) compopt -o filenames; mapfile -t COMPREPLY < <(compgen -f -- "$cur"); return ;;
  qacct:-b|qacct:-d|qacct:-e|qacct:-l|qacct:-t) return ;;
  qalter:-stageout_to|qalter:-wd) compopt -o filenames; mapfile -t COMPREPLY < <(compgen -d -- "$cur"); return ;;
  qalter:-@|qalter:-e|qalter:-i|qalter:-o|qalter:-S|qalter:-stagein) compopt -o filenames; mapfile -t COMPREPLY < <(compgen -f -- "$cur"); return ;;
  qalter:-v) mapfile -t COMPREPLY < <(compgen -e -- "$cur"); return ;;
  qalter:-a|qalter:-ac|qalter:-attr|qalter:-A|qalter:-binding|qalter:-ckpt|qalter:-dc|qalter:-l|qalter:-M|qalter:-N|qalter:-p|qalter:-P|qalter:-sc|qalter:-stageout|qalter:-t|qalter:-tc|qalter:-u|qalter:-when_out) return ;;
  qalter:-hold_jid|qalter:-hold_jid_ad|qalter:-hold_jid_ok|qalter:-hold_jid_ad_ok) words=" $(_paddock_jobs)" ;;
  qalter:-pe) words=" $(_paddock_pes)" ;;
  qalter:-masterq|qalter:-q) words=" $(_paddock_queues)" ;;
  qalter:-m) words='b e a s n' ;;
  qalter:-w) words='e w n p v' ;;
  qalter:-c) words='n s m x r' ;;
  qalter:-h) words='u o s n U O S' ;;
  qalter:-j|qalter:-r|qalter:-R|qalter:-sandbox) words='y n' ;;
  qrsh:-wd) compopt -o filenames; mapfile -t COMPREPLY < <(compgen -d -- "$cur"); return ;;
  qrsh:-@|qrsh:-e|qrsh:-o|qrsh:-S) compopt -o filenames; mapfile -t COMPREPLY < <(compgen -f -- "$cur"); return ;;
  qrsh:-v) mapfile -t COMPREPLY < <(compgen -e -- "$cur"); return ;;
  qrsh:-ac|qrsh:-attr|qrsh:-A|qrsh:-binding|qrsh:-dc|qrsh:-into|qrsh:-l|qrsh:-listen|qrsh:-M|qrsh:-N|qrsh:-p|qrsh:-P|qrsh:-reconnect|qrsh:-sc) return ;;
  qrsh:-pe) words=" $(_paddock_pes)" ;;
  qrsh:-masterq|qrsh:-q) words=" $(_paddock_queues)" ;;
  qrsh:-m) words='b e a s n' ;;
  qrsh:-w) words='e w n p v' ;;
  qrsh:-lost) words='end stop keep' ;;
  qrsh:-escape) words='none' ;;
  qrsh:-b|qrsh:-now|qrsh:-pty|qrsh:-R|qrsh:-suspend_remote) words='y n' ;;
  qlogin:-wd) compopt -o filenames; mapfile -t COMPREPLY < <(compgen -d -- "$cur"); return ;;
  qlogin:-@|qlogin:-e|qlogin:-o|qlogin:-S) compopt -o filenames; mapfile -t COMPREPLY < <(compgen -f -- "$cur"); return ;;
  qlogin:-v) mapfile -t COMPREPLY < <(compgen -e -- "$cur"); return ;;
  qlogin:-ac|qlogin:-attr|qlogin:-A|qlogin:-binding|qlogin:-dc|qlogin:-l|qlogin:-listen|qlogin:-M|qlogin:-N|qlogin:-p|qlogin:-P|qlogin:-reconnect|qlogin:-sc) return ;;
  qlogin:-pe) words=" $(_paddock_pes)" ;;
  qlogin:-masterq|qlogin:-q) words=" $(_paddock_queues)" ;;
  qlogin:-m) words='b e a s n' ;;
  qlogin:-w) words='e w n p v' ;;
  qlogin:-lost) words='end stop keep' ;;
  qlogin:-escape) words='none' ;;
  qlogin:-now|qlogin:-pty|qlogin:-R|qlogin:-suspend_remote) words='y n' ;;
  qsh:-wd) compopt -o filenames; mapfile -t COMPREPLY < <(compgen -d -- "$cur"); return ;;
  qsh:-@|qsh:-e|qsh:-o|qsh:-S) compopt -o filenames; mapfile -t COMPREPLY < <(compgen -f -- "$cur"); return ;;
  qsh:-v) mapfile -t COMPREPLY < <(compgen -e -- "$cur"); return ;;
  qsh:-ac|qsh:-attr|qsh:-A|qsh:-binding|qsh:-dc|qsh:-display|qsh:-l|qsh:-M|qsh:-N|qsh:-p|qsh:-P|qsh:-sc) return ;;
  qsh:-pe) words=" $(_paddock_pes)" ;;
  qsh:-masterq|qsh:-q) words=" $(_paddock_queues)" ;;
  qsh:-m) words='b e a s n' ;;
  qsh:-w) words='e w n p v' ;;
  qsh:-now|qsh:-R) words='y n' ;;
  qresub:-t) return ;;
  qresub:-h) words='u o s n U O S' ;;
  qwait:-timeout) return ;;
  qlog:-n) return ;;
  qtop:-d|qtop:-n|qtop:-u) return ;;
  execd:-config|execd:-dev|execd:-root) compopt -o filenames; mapfile -t COMPREPLY < <(compgen -d -- "$cur"); return ;;
  execd:-end|execd:-grace) return ;;
  execd:-speed) words='graceful quick fast' ;;
  execd:-pool) words='new host revoke list' ;;
  qweb:-socket) compopt -o filenames; mapfile -t COMPREPLY < <(compgen -f -- "$cur"); return ;;
  qweb:-idle|qweb:-port) return ;;
  esac
  [[ -n $words ]] || case ${COMP_WORDS[0]##*/}:$cur in
  qsub:-*) words='-@ -a -ac -ad -attr -A -b -binding -c -ckpt -clear -cwd -C -dc -e -h -hard -help -hold_jid -hold_jid_ad -hold_jid_ok -hold_jid_ad_ok -i -j -l -m -M -masterq -N -notify -now -o -p -P -pe -pty -q -r -R -S -sandbox -sc -shell -soft -stagein -stageout -stageout_to -sync -t -tc -terse -v -V -verify -version -w -wd -when_out' ;;
  qstat:-*) words='-cb -explain -ext -f -F -g -help -j -json -l -ncb -ne -pe -pri -q -qs -r -s -t -u -U -urg -version -xml' ;;
  qdel:-*) words='-f -help -t -u -version' ;;
  qhold:-*) words='-h -help -t -u -version' ;;
  qrls:-*) words='-h -help -t -u -version' ;;
  qmod:-*) words='-c -cj -cq -d -e -f -help -r -rj -rq -s -sj -sq -t -us -usj -usq -version' ;;
  qhost:-*) words='-F -h -help -j -json -l -ncb -peers -q -slotad -sandboxes -slots -u -version -xml' ;;
  qselect:-*) words='-help -json -l -pe -q -qs -U -version' ;;
  qconf:-*) words='-aattr -Aattr -ace -Ace -ackpt -Ackpt -ae -Ae -ah -ahgrp -Ahgrp -am -ao -ap -Ap -aprj -Aprj -aq -Aq -as -Au -au -clearusage -dattr -Dattr -dcal -dce -dckpt -de -dhgrp -dm -do -dp -dprj -dq -drqs -dry -dstree -du -dul -duser -help -json -mattr -Mattr -mc -Mc -mce -Mce -mckpt -Mckpt -mconf -Mconf -me -Me -mhgrp -Mhgrp -mp -Mp -mprj -Mprj -mq -Mq -msconf -Msconf -mu -Mu -purge -rattr -Rattr -reload -rsstnode -sc -scal -scall -sce -scel -sckpt -sckptl -sconf -sconfl -se -sel -sh -shgrp -shgrp_resolved -shgrp_tree -shgrpl -sknobs -sm -so -sobjl -sp -spl -sprj -sprjl -sq -sql -srqs -srqsl -ss -ssconf -sss -sst -sstnode -sstree -su -sul -suser -suserl -version' ;;
  qacct:-*) words='-ar -A -b -d -D -e -E -f -g -h -help -j -json -l -m -o -P -pe -q -slots -t -u -version' ;;
  qalter:-*) words='-@ -a -ac -attr -A -binding -c -ckpt -cwd -dc -e -h -hard -help -hold_jid -hold_jid_ad -hold_jid_ok -hold_jid_ad_ok -i -j -json -l -m -M -masterq -N -notify -o -p -P -pe -q -r -R -S -sandbox -sc -soft -stagein -stageout -stageout_to -t -tc -u -v -V -verify -version -w -wd -when_out' ;;
  qrsh:-*) words='-@ -ac -attr -A -b -binding -clear -cwd -dc -e -escape -hard -help -inherit -into -l -listen -lost -m -M -masterq -N -noshell -nostdin -notify -now -o -p -P -pe -pty -q -R -reconnect -S -sc -soft -suspend_remote -v -V -verbose -verify -version -w -wd' ;;
  qlogin:-*) words='-@ -ac -attr -A -binding -clear -cwd -dc -e -escape -hard -help -l -listen -lost -m -M -masterq -N -notify -now -o -p -P -pe -pty -q -R -reconnect -S -sc -soft -suspend_remote -v -V -verbose -verify -version -w -wd' ;;
  qsh:-*) words='-@ -ac -attr -A -binding -clear -cwd -dc -display -e -hard -help -l -m -M -masterq -N -notify -now -o -p -P -pe -q -R -S -sc -soft -v -V -verbose -verify -version -w -wd' ;;
  qresub:-*) words='-failed -h -help -json -t -version' ;;
  qwait:-*) words='-help -json -timeout -version' ;;
  qlog:-*) words='-e -f -help -n -o -version' ;;
  qtop:-*) words='-b -d -help -json -n -u -version' ;;
  execd:-*) words='-boot -check -config -debug -dev -drain -end -fast -fetch -grace -help -json -off -pilot -pool -renew -repair -root -speed -status -t -vacate -version -wait' ;;
  qweb:-*) words='-help -idle -port -socket -version' ;;
  qdel:*|qhold:*|qrls:*|qmod:*|qalter:*|qresub:*|qwait:*|qlog:*) words=$(_paddock_jobs) ;;
  qsub:*) compopt -o filenames; mapfile -t COMPREPLY < <(compgen -f -- "$cur"); return ;;
  esac
  mapfile -t COMPREPLY < <(compgen -W "$words" -- "$cur")
}
complete -F _paddock qsub qstat qdel qhold qrls qmod qhost qselect qconf qacct qalter qrsh qlogin qsh qresub qwait qlog qtop execd qweb
