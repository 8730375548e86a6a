package interop

// commandScript is command lines that are run one after the other. A line "! name ..." says
// in what the line before it differs, "wait JOB STATE" waits for qstat to show
// that, "JOB = " before a command names the job that it submits, which is @JOB
// from then on, and "root: " and "other: " say who types it.
type commandScript struct{ name, lines string }

var commandScripts = []commandScript{
	{"submit", `
printf 'true\n' >script.sh
# What is said of one.
a = qsub -h -o /dev/null script.sh
b = qsub -h -b y -o /dev/null true
c = qsub -h -N named -o /dev/null script.sh one 'two three'
echo true | qsub -h -o /dev/null
echo true | qsub -h -o /dev/null -
! dash
echo true | qsub -h -o /dev/null -N piped - one two
! dash
d = qsub -terse -h -o /dev/null script.sh
e = qsub -t 1-3 -h -o /dev/null script.sh
f = qsub -t 2-10:4 -h -o /dev/null script.sh
qsub -t 5 -h -o /dev/null script.sh
qsub -terse -t 1-9:3 -h -o /dev/null script.sh
qsub -b y -h -o /dev/null /bin/sh -c true
qsub -b y -h -o /dev/null '/bin/echo with words'
! blank
qsub -h -o /dev/null -p -5 -A account -m n -M nobody -j y -r y -R y -notify script.sh
qsub -h -o /dev/null -l h_rt=1:0:0,h_vmem=1G -q one.iop script.sh
qsub -h -o /dev/null -pe pe.iop 2-4 script.sh
qsub -h -o /dev/null -hold_jid @a,@b script.sh
qsub -h -o /dev/null -hold_jid nothing script.sh
qsub -h -o /dev/null -hold_jid 1 script.sh
qsub -h -o /dev/null -hold_jid 'n*' script.sh
qsub -h -o /dev/null -t 1-3 -hold_jid_ad @e script.sh
qsub -h -o /dev/null -a 203001010000 script.sh
qsub -h -o /dev/null -v A=1,B,C='x y' script.sh
qsub -h -o /dev/null -V script.sh
qsub -h -o /dev/null -cwd -wd /tmp -e /dev/null -i /dev/null -S /bin/sh script.sh
qsub -h -o /dev/null -soft -l h_rt=60 -hard -q all.q script.sh
qsub -h -o /dev/null -c m -ckpt nothing script.sh
qsub -h -o /dev/null -tc 2 -t 1-4 script.sh
qsub -h -o /dev/null -sync n -now n -shell n -b y true
qsub -h -o /dev/null -binding linear:1 script.sh
qsub -h -o /dev/null -masterq all.q -pe pe.iop 2 script.sh
qsub -w v -o /dev/null script.sh
qsub -w e -h -o /dev/null script.sh
qsub -w w -h -o /dev/null script.sh
qsub -w p -o /dev/null script.sh
qsub -w v -q one.iop -pe pe.iop 2 script.sh
! verification
qsub -w e -q one.iop -pe pe.iop 2 script.sh
qsub -w w -h -q one.iop -pe pe.iop 2 script.sh
qsub -w v -l arch=none script.sh
! verification
qsub -w e -l arch=none script.sh
qsub -w w -h -l arch=none script.sh
`},
	{"help", `
qsub -help | sed -n '1{s/ (.*//;p}'
qalter -help | sed -n '1{s/ (.*//;p}'
qresub -help | sed -n '1{s/ (.*//;p}'
qstat -help | sed -n '1{s/ (.*//;p}'
qdel -help | sed -n '1{s/ (.*//;p}'
qhold -help | sed -n '1{s/ (.*//;p}'
qrls -help | sed -n '1{s/ (.*//;p}'
qmod -help | sed -n '1{s/ (.*//;p}'
qhost -help | sed -n '1{s/ (.*//;p}'
qselect -help | sed -n '1{s/ (.*//;p}'
qconf -help | sed -n '1{s/ (.*//;p}'
qacct -help | sed -n '1{s/ (.*//;p}'
qsub -help >/dev/null
qalter -help >/dev/null
qresub -help >/dev/null
qstat -help >/dev/null
qdel -help >/dev/null
qhold -help >/dev/null
qrls -help >/dev/null
qmod -help >/dev/null
qhost -help >/dev/null
qselect -help >/dev/null
qconf -help >/dev/null
qacct -help >/dev/null
`},
	{"project", `
printf 'true\n' >script.sh
for p in iop1 iop2 iop3; do printf 'name %s\noticket 0\nfshare 0\nacl NONE\nxacl NONE\n' $p >$p; done
root: qconf -au paddock-interop iopteam
root: sed -i 's/^acl.*/acl iopteam/' iop2; sed -i 's/^xacl.*/xacl iopteam/' iop3
root: qconf -Aprj iop1; qconf -Aprj iop2; qconf -Aprj iop3
qsub -h -o /dev/null -P nope script.sh
qsub -h -o /dev/null -P '' script.sh
qsub -P
a = qsub -h -o /dev/null -P iop1 script.sh
b = qsub -h -o /dev/null -P iop2 script.sh
qsub -h -o /dev/null -P iop3 script.sh
qstat -ext | awk '{print $6}'
qstat -xml -ext | grep -i proj
qstat -j @a | grep project
qstat -j @a -xml | grep JB_project
other: qsub -h -o /dev/null -P iop2 script.sh
qalter -P iop2 @a
qalter -P iop3 @a
qalter -P nope @a
qalter -P '' @b
qstat -ext | awk '{print $6}'
root: qconf -mattr queue projects iop1 one.iop
qsub -w v -q one.iop -P iop1 -o /dev/null script.sh
qsub -w v -q one.iop -P iop2 -o /dev/null script.sh
! verification project
qsub -w v -q one.iop -o /dev/null script.sh
! verification
c = qsub -q one.iop -P iop1 -N inproject -o /dev/null script.sh
wait c gone
qacct -j @c | grep project
root: qconf -dprj iop1
root: qconf -rattr queue projects NONE one.iop
root: qconf -mattr queue xprojects iop1 one.iop
qsub -w v -q one.iop -P iop1 -o /dev/null script.sh
! verification project
qsub -w v -q one.iop -P iop2 -o /dev/null script.sh
root: qconf -rattr queue xprojects NONE one.iop
qdel @a @b
root: qconf -dprj iop1,iop2,iop3
root: qconf -dul iopteam
qsub -dl x script.sh
! unsupported
qsub -js 5 -h script.sh
! unsupported
`},
	{"edges", `
printf 'true\n' >script.sh
qdel 0
qdel 0.1
qdel -f 0
qstat -j 0
qalter -p -1 0
qhold 0
qrls 0
qresub 0
qmod -sj 0
qmod -rj 0
qmod -cj 0
qstat -u ''
! once
qstat -u '' -f
! once
r = qsub -r n -o /dev/null -j y -b y sleep 100
wait r r
n = qsub -o /dev/null -j y -b y -q all.q sleep 100
wait n r
h = qsub -h -o /dev/null -b y sleep 100
qmod -rj @r
qmod -rj @n
! named
qmod -rj @h
qmod -rj @h 999999999
qmod -rj 999999999
qmod -rj nosuch
qalter -masterq all.q @h
qalter -masterq nope @h
qalter -masterq '' @h
qsub -h -o nohost.iop:/tmp/x script.sh
qsub -h -e nohost.iop:/tmp/x script.sh
qsub -h -i nohost.iop:/tmp/x script.sh
qsub -h -o gehost:/tmp/x script.sh
qsub -h -o nohost.iop:/tmp/x,gehost:/tmp/y script.sh
qsub -h -o :/tmp/x script.sh
qsub -h -o gehost: script.sh
qalter -o nohost.iop:/tmp/x @h
a = qsub -h -t 1-10 -o /dev/null -b y sleep 100
qdel @a -t 1-3
qdel @a.5
qdel @a.4-6
qdel @a -t 2
qdel @a.7-20
qdel @a
b = qsub -h -t 1-10:3 -o /dev/null -b y sleep 100
qdel @b.1-4:3
qdel @b.7
qdel @b.10
`},
	{"options", `
printf 'true\n' >script.sh
qsub -zzz script.sh
qsub -N
qsub -N a/b script.sh
qsub -N 1name -h script.sh
qsub -N 'a:b' script.sh
qsub -N 'a@b' script.sh
qsub -N 'a*b' script.sh
qsub -N '' script.sh
qsub -N none script.sh
qsub -o
qsub -o '' script.sh
qsub -e '' script.sh
qsub -i '' script.sh
! path
qsub -S '' script.sh
qsub -wd '' script.sh
! strict
qsub -j maybe script.sh
qsub -b maybe script.sh
qsub -r maybe script.sh
qsub -R maybe script.sh
qsub -now maybe script.sh
qsub -sync maybe script.sh
qsub -shell maybe script.sh
qsub -j
qsub -p 2000 script.sh
qsub -p -2000 script.sh
qsub -p x script.sh
qsub -p 10 script.sh
qsub -p
qsub -t 0 script.sh
qsub -t 0-1 script.sh
qsub -t 3-1 script.sh
qsub -t 1-3:0 script.sh
qsub -t 1-x script.sh
qsub -t x script.sh
qsub -t 1-2,5 script.sh
! lists
qsub -t '' script.sh
! strict
qsub -t -3 script.sh
qsub -t 1-100000000 script.sh
qsub -t 1-100000 script.sh
qsub -tc -1 script.sh
qsub -tc x script.sh
qsub -pe pe.iop
qsub -pe pe.iop 0 script.sh
qsub -pe pe.iop x script.sh
qsub -pe pe.iop 2x script.sh
! strict
qsub -pe pe.iop 1-x script.sh
qsub -pe nope 2 script.sh
qsub -pe pe.iop '' script.sh
! strict
qsub -q '' script.sh
qsub -q nope script.sh
qsub -q nope@gehost -h script.sh
qsub -q all.q@nope -h script.sh
qsub -q 'no*' -h script.sh
qsub -masterq nope -pe pe.iop 2 script.sh
qsub -l nope=1 script.sh
qsub -l '' script.sh
qsub -l =1 script.sh
! once
qsub -l h_rt= script.sh
qsub -l h_rt=x script.sh
qsub -l h_rt script.sh
! strict
qsub -l h_vmem=1Q script.sh
qsub -l slots=2 script.sh
qsub -l arch -w v script.sh
! verification
qsub -l h_rt=1:2:3:4 script.sh
qsub -hold_jid '' script.sh
qsub -hold_jid 12x -h script.sh
qsub -hold_jid_ad 1 script.sh
qsub -hold_jid_ad 1 -t 1-2 script.sh
qsub -a 1 script.sh
qsub -a 13010000 script.sh
qsub -a 01320000 script.sh
qsub -a 01012500 script.sh
qsub -a 01010060 script.sh
qsub -a 01010000.99 script.sh
qsub -a 01010000.9 script.sh
qsub -a xxxxxxxx script.sh
qsub -a 190001010000 script.sh
qsub -a
qsub -m x script.sh
qsub -m '' script.sh
qsub -M '' script.sh
qsub -M
qsub -v '' script.sh
qsub -v =1 script.sh
qsub -v
qsub -w x script.sh
qsub -w
qsub -c x script.sh
qsub -c '' script.sh
qsub -c 1:2:3:4 script.sh
qsub -ckpt nope script.sh
qsub -ckpt nope -c n script.sh
qsub -c m script.sh
qsub -A a/b -h script.sh
qsub -A 'a:b' script.sh
qsub -A '' -h script.sh
qsub -binding nothing script.sh
qsub -binding linear:0 script.sh
! binding
qsub -binding linear:x script.sh
qsub -binding striding:1 script.sh
qsub -binding explicit script.sh
qsub -binding explicit:0,0:0,0 script.sh
qsub -binding explicit:x script.sh
qsub -@ nope script.sh
! files
qsub -@
qsub -C
qsub -P nope script.sh
qsub -js 1 -h script.sh
! unsupported
qsub -ar 1 script.sh
! unsupported
qsub -he y script.sh
! unsupported
qsub -h -h script.sh
! last
qsub -terse=1 script.sh
qsub /no/such/script
qsub no-such-script
qsub .
! once
qsub -b y
qsub -b y /no/such/program -h
: | qsub
: | qsub -
! dash
: >empty.sh; qsub empty.sh
printf '' | qsub -N nothing
other: qsub -o /dev/null -h -p 1 script.sh
`},
	{"directives", `
printf '#$ -N inscript -h\n#$ -o /dev/null\ntrue\n' >a.sh; qsub a.sh
qsub -N online a.sh
printf '#$ -zzz\ntrue\n' >b.sh; qsub b.sh
! place
printf '#$ -N\ntrue\n' >c.sh; qsub c.sh
! place
printf '#$ word\ntrue\n' >d.sh; qsub d.sh
! place
printf '#$ -N "open\ntrue\n' >e.sh; qsub e.sh
! quote
printf '#$ -h -N "a b" # comment\n#$ -o /dev/null\ntrue\n' >f.sh; qsub f.sh
! blank
printf '#$ -p 5000\ntrue\n' >g.sh; qsub g.sh
! place
printf '#$ -help\ntrue\n' >h.sh; qsub h.sh
! place
printf '#PBS -N pbs -h -o /dev/null\ntrue\n' >i.sh; qsub -C '#PBS' i.sh
qsub -C '' -h -o /dev/null a.sh
qsub -C '' -h -o /dev/null b.sh
printf '#$ -l nope=1\ntrue\n' >j.sh; qsub j.sh
printf '#$ -pe pe.iop\ntrue\n' >k.sh; qsub k.sh
! place
printf '#$ -t 0-1\ntrue\n' >l.sh; qsub l.sh
printf '#$ -v\ntrue\n' >m.sh; qsub m.sh
! place
printf '#$ -terse\n#$ -h -o /dev/null\ntrue\n' >n.sh; x = qsub n.sh
printf '#$ -verify -b n\ntrue\n' >o.sh; qsub o.sh | head -1
printf '#$ -h -o /dev/null\r\ntrue\n' >p.sh; qsub p.sh
printf '#$ -@ nope\ntrue\n' >q.sh; qsub q.sh
! files
printf -- '-N fromfile -h\n-o /dev/null\n' >options; printf 'true\n' >r.sh; qsub -@ options r.sh
printf -- '-zzz\n' >options; qsub -@ options r.sh
! files
printf -- 'word\n' >options; qsub -@ options r.sh
! place
printf -- '-N bydefault\n-h -o /dev/null\n' >.sge_request; qsub r.sh
qsub -N stronger r.sh
qsub -clear -h -o /dev/null r.sh
printf -- '-zzz\n' >.sge_request; qsub r.sh
! place
printf -- '-N\n' >.sge_request; qsub r.sh
! place
printf -- 'word\n' >.sge_request; qsub r.sh
! place
printf -- '-N "open\n' >.sge_request; qsub r.sh
! quote
printf -- '# comment\n-h -o /dev/null -inherit -verbose\n' >.sge_request; qsub r.sh
! others
printf -- '-p 5000\n' >.sge_request; qsub r.sh
! place
rm .sge_request
`},
	{"verify", `
printf 'true\n' >script.sh
qsub -verify script.sh
qsub -verify -b y echo one two
qsub -verify -N name -A account -cwd -e err -o out -i in -j y -S /bin/sh script.sh a b
qsub -verify -l h_rt=60,h_vmem=1G -soft -l arch=lx-amd64 -q all.q script.sh
qsub -verify -q all.q,one.iop -soft -q one.iop -masterq all.q script.sh
qsub -verify -pe pe.iop 1-3,7 script.sh
! ranges
qsub -verify -pe pe.iop 4- script.sh
qsub -verify -t 1-10:3 -tc 2 script.sh
qsub -verify -m beas -M one,two@there script.sh
qsub -verify -p -10 -r y -notify -R y script.sh
qsub -verify -r n -now n -sync y script.sh
qsub -verify -v A=1,B='two words',C= script.sh
qsub -verify -hold_jid 1,2,three script.sh
qsub -verify -h script.sh
qsub -verify -a 203012312359.30 script.sh
qsub -verify -binding linear:2 script.sh
qsub -verify -binding env striding:1:2:0,0 script.sh
qsub -verify -c sx -ckpt check script.sh
qsub -verify -c 1:0:0 -ckpt check script.sh
qsub -verify -b y -shell n echo
qsub -verify -wd /tmp script.sh
qsub -verify -terse script.sh
qsub -verify -w v script.sh
`},
	{"running", `
r = qsub -b y -o /dev/null -j y -N runner -q one.iop sleep 1000
wait r r
p = qsub -b y -o /dev/null -j y -N waiter -q one.iop -p -3 sleep 1000
h = qsub -h -b y -o /dev/null -j y -N holder -q one.iop sleep 1000
a = qsub -h -t 1-5:2 -b y -o /dev/null -j y -N anarrayname sleep 1000
n = qsub -h -b y -o /dev/null -j y -N anamethatistoolongforitscolumn -pe pe.iop 2 sleep 1000
# It has its priority from when the scheduler has seen it.
wait p qw
qstat
qstat -u nobody
qstat -u paddock-interop
qstat -s p
qstat -s r
qstat -s s
qstat -s h
qstat -s hu
qstat -s hj
qstat -s a
qstat -s x
qstat -s ''
! once
qstat -s
qstat -q one.iop
qstat -q nope
! queue
qstat -q 'o*'
qstat -q one.iop@gehost
qstat -f -q one.iop
qstat -f -ne -q one.iop
qstat -f -q one.iop -s r
qstat -f -q one.iop -u nobody
qstat -f -q one.iop -qs a
qstat -f -q one.iop -qs d
qstat -f -q one.iop -qs x
! once
qstat -F slots,qname -q one.iop
qstat -F nope -q one.iop
qstat -f -explain a -q one.iop
qstat -f -explain x -q one.iop
! once
qstat -g c -q one.iop
qstat -g x
qstat -g
qstat -j @r
! details
qstat -j @p
! details
qstat -j @h
! details
qstat -j @a
! details
qstat -j @n
! details
qstat -j runner
! details
qstat -j 'run*'
! details
qstat -j 999999999
qstat -j nope
qstat -j nope,999999999
qstat -j @h,nope
! details missing
qstat -j
! scheduler
qstat -j ''
! scheduler
qstat -zzz
qstat operand
qstat -help -zzz | head -1
qselect -q '*.iop'
qselect -q 'o*'
qselect -q nope
! queue
qselect -qs d -q '*.iop'
qselect -qs x
! once
qselect -zzz
qhost -h gehost -q | grep iop
qhost -h nope
qhost -zzz
qhost -j -h gehost
qhost -F nope
# Grid Engine has load values that it had kept over a restart before the others.
qhost -F -h gehost | sed '1,4d; s/hl:\([^=]*\)=.*/hl:\1/' | sort
qstat -F -q one.iop | sed '1,3d; s/hl:\([^=]*\)=.*/hl:\1/; s/tmpdir=.*//' | sort
qstat -F -q one.iop | grep -v hl: | sed 's/tmpdir=.*//'
qhold @r
qstat -s hu
qstat -s p
qstat -s r
qstat
qmod -sj @r
wait r hs
qrls @r
wait r s
qmod -usj @r
wait r r
qhost -u nobody -h gehost
`},
	{"holds", `
# Nothing of it starts.
r = qsub -b y -o /dev/null -j y -q one.iop sleep 1000
wait r r
h = qsub -h -b y -o /dev/null -j y -q one.iop sleep 1000
g = qsub -b y -o /dev/null -j y -hold_jid @h true
a = qsub -h -t 1-5 -b y -o /dev/null -j y -q one.iop sleep 1000
qhold
qrls
qhold @h
qhold -h u @h
qhold -h o @h
qhold -h s @h
qhold -h x @h
qhold -h '' @h
! strict
qhold -h
qhold -h n @h
root: qhold -h os @h
qstat
qrls @h
qrls @h
qrls -h o @h
root: qrls -h s @h
qrls -h s @h
root: qrls -h o @h
qrls nope
qrls 999999999
qhold 999999999,@h
qhold nope
qhold -u nobody
other: qhold @h
other: qrls @h
qrls @a.2
qrls @a -t 3-4
qrls @a.1-2
qhold @a -t x
qhold @a.x
qhold @a.9
qhold -t 1
! lonely
qstat -s p
! waiting
qhold -zzz
qrls -zzz
qhold -u paddock-interop
! order
qrls -u paddock-interop
! order
`},
	{"modify", `
r = qsub -b y -o /dev/null -j y -q one.iop sleep 1000
wait r r
p = qsub -h -b y -o /dev/null -j y sleep 1000
a = qsub -h -t 1-3 -b y -o /dev/null -j y sleep 1000
qmod
qmod -zzz
qmod @r
qmod -sj
qmod -sj @r
wait r s
qstat
qmod -sj @r
qmod -usj @r
wait r r
qmod -usj @r
qmod -sj @p
qmod -usj @p
qmod -sj @a
qmod -sj 999999999
qmod -sj nope
qmod -cj @r
qmod -cj @p
qmod -cj 999999999
qmod -rj @p
qmod -rj 999999999
other: qmod -sj @r
other: qmod -cj @p
other: qmod -rj @r
qmod -d one.iop
qmod -e one.iop
other: qmod -sq one.iop
root: qmod -d one.iop
root: qmod -d one.iop
qstat -f -q one.iop
qstat -f -q one.iop -qs d
qselect -qs d -q '*.iop'
root: qmod -e one.iop
root: qmod -e one.iop
root: qmod -sq one.iop
root: qmod -sq one.iop
wait r S
qstat -f -q one.iop
root: qmod -usq one.iop
root: qmod -usq one.iop
wait r r
root: qmod -cq one.iop
root: qmod -d nope
root: qmod -d one.iop@nope
root: qmod -cq nope
root: qmod -d 'o*'
root: qmod -e 'o*'
root: qmod -s one.iop
root: qmod -us one.iop
root: qmod -d
qmod -s @r
wait r s
qmod -us @r
wait r r
# The other run begins a minute later.
qmod -rj @r
`},
	{"alter", `
r = qsub -b y -o /dev/null -j y -q one.iop sleep 1000
wait r r
p = qsub -h -b y -o /dev/null -j y -N pend sleep 1000
a = qsub -h -t 1-3 -b y -o /dev/null -j y -N arr -q one.iop sleep 1000
qalter -zzz @p
qalter -N
qalter -N named @p
qalter -N a/b @p
qalter -N 'a:b' @p
qalter -p 10 @p
qalter -p -10 @p
qalter -p x @p
root: qalter -p 10 @p
qalter -l h_rt=1:0:0 -q one.iop -A account @p
qalter -l nope=1 @p
qalter -l h_rt=x @p
qalter -q nope @p
qalter -pe pe.iop 2-4 @p
qalter -pe nope 2 @p
qalter -a 203001010000 @p
qalter -h o @p
qalter -h s @p
qalter -h SO @p
qalter -h n @p
qalter -h x @p
qalter -h U @p
qalter -h u @p
qalter -h u @p
qalter -h U @a.2
qalter -N tasks @a.1
qalter -tc 2 @a
qalter -tc 2 @p
qalter -tc x @p
qalter -hold_jid @r @p
qalter -hold_jid @p @p
qalter -hold_jid_ad @a @p
qalter -m be -M nobody@there @p
qalter -o /tmp -e /dev/null -j n @p
qalter -ac one=1,two=2 @p
qalter -dc one @p
qalter -c m @p
! strict
qalter -ckpt nope @p
qalter -N x 999999999
qalter -N x nope
qalter -N x @p,999999999
other: qalter -N x @p
qalter -N x @r
qalter -now y @p
qstat -j @p
! details
qalter -sc three=3 @p
qalter @p
qresub -zzz
qresub @p
qresub -h u @p
! copies
qresub @a.1
qresub 999999999
qresub nope
! copies
qresub -h x @p
qresub -N x @p
`},
	{"delete", `
printf 'exit 3\n' >script.sh
r = qsub -b y -o /dev/null -j y -q one.iop sleep 1000
wait r r
a = qsub -t 1-8 -b y -h -o /dev/null -j y -N arr sleep 1000
p = qsub -h -b y -o /dev/null -j y -N pend sleep 1000
q = qsub -h -b y -o /dev/null -j y -N pend sleep 1000
o = qsub -h -b y -o /dev/null -j y -N other sleep 1000
other: f = qsub -h -b y -o /dev/null -j y -N foreign sleep 1000
qdel
! qdel
qdel -zzz
! dashes
qdel 999999999
qdel nope
qdel 'no*'
qdel @f
qdel foreign
qdel @a.1
qdel @a.2-4
qdel @a -t 6-8:2
qdel @a.1
qdel @a.99
qdel @a.x
qdel @a -t x
qdel -t 1
qdel @a.0
qdel @a
qdel @a
qdel pend
qdel @p
qdel -u nobody
qdel -u paddock-iop-other
other: qdel @r
other: qdel -u paddock-interop
qdel @o,@f,999999999
qdel @r
wait r gone
qdel @r
e = qsub -o /dev/null -j y script.sh
wait e gone
qdel @e
qstat -j @e
qacct -j 999999999
qacct -j nope
qacct -j @e -t 1
root: qdel @f
qdel -u paddock-interop
b = qsub -t 1-1 -q one.iop -b y -o /dev/null -j y sleep 1000
wait b r
qdel @b
wait b gone
`},
	{"sync", `
printf 'exit 3\n' >script.sh
qsub -sync y -o /dev/null script.sh; echo $?
qsub -sync y -terse -o /dev/null script.sh; echo $?
qsub -sync y -o /dev/null -b y true
qsub -sync y -o /dev/null -j y -N killed -b y 'kill -9 $$'
! reason
qsub -sync y -o /dev/null -t 1-2 script.sh 2>&1 | sort
qsub -now y -o /dev/null -b y true
qsub -now y -l h_rt=10 -q one.iop -pe pe.iop 2 -o /dev/null -b y true
! now
`},
	{"configuration", `
qconf
qconf -zzz
qconf -sq one.iop
qconf -sq one.iop,nope
qconf -sq nope
qconf -sp pe.iop
qconf -sp nope
qconf -sckpt nope
qconf -su nope
qconf -shgrp @nope
qconf -shgrp nope
qconf -se nope
qconf -sm
qconf -sul
qconf -sc | sed 3q
qconf -ssconf | sed 3q
`},
}
