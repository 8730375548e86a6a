#!/bin/sh
#$ -S /bin/sh -N paddock-pilot -cwd -j y -r n
#$ -pe smp 4 -l h_vmem=2G,h_rt=8:0:0
# A pilot in a job of Grid Engine, or of Paddock: its work comes from
# ~/.config/paddock/pilot, see pilot(7). USR2 comes a moment before the job is killed.
#$ -notify
exec execd -pilot
