#!/bin/sh
#SBATCH --job-name=paddock-pilot --ntasks=1 --cpus-per-task=4 --mem=8G --time=8:00:00
#SBATCH --no-requeue --open-mode=append --output=%x.%j.log
# A pilot in a job of Slurm: its work comes from ~/.config/paddock/pilot, see pilot(7).
# USR1 comes ten minutes before the end, so that nothing new is begun.
#SBATCH --signal=B:USR1@600
exec execd -pilot
