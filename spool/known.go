package spool

import "strings"

// Known reports whether a key of config is one that a shepherd or an execd
// gives a meaning to.
func Known(key string) bool {
	switch key {
	case KeyAddGrpID, KeySkipNGroups, KeyAdminUser, KeyJobOwner, KeyMinUID, KeyMinGID, KeyQsubGID, KeyWriteOSJobID,
		KeyEnableAddGrpKill, KeyEnableWindomacc, KeyScriptFile, KeyExecFile, KeyHandleAsBinary, KeyNoShell, KeyShellPath,
		KeyShellStartMode, KeyUseLoginShell, KeyStarterMethod, KeyNJobArgs, KeyDisplay, KeyJobName, KeyPTY, KeyCwd,
		KeyStdinPath, KeyStdoutPath, KeyStderrPath, KeyMergeStderr, KeyPEStdoutPath, KeyPEStderrPath, KeyTmpdir,
		KeyQueueTmpdir, KeyFSStdinHost, KeyFSStdinPath, KeyFSStdinTmpPath, KeyFSStdinStaging, KeyFSStdoutHost,
		KeyFSStdoutPath, KeyFSStdoutTmpPath, KeyFSStdoutStaging, KeyFSStderrHost, KeyFSStderrPath, KeyFSStderrTmpPath,
		KeyFSStderrStaging, KeyProlog, KeyEpilog, KeyPE, KeyPEStart, KeyPEStop, KeyPEQsort, KeyPESlots, KeyPEHostfile,
		KeyHostSlots, KeyScriptTimeout, KeySuspendMethod, KeyResumeMethod, KeyTerminateMethod, KeyNotify, KeyNotifyKillType,
		KeyNotifyKill, KeyNotifySuspType, KeyNotifySusp, KeyCkptJob, KeyCkptRestarted, KeyCkptPID, KeyCkptOSJobID,
		KeyCkptInterface, KeyCkptCommand, KeyCkptMigrCommand, KeyCkptRestCommand, KeyCkptCleanCommand, KeyCkptDir,
		KeyCkptSignal, KeyCkptInterval, KeySCPU, KeyHCPU, KeySFsize, KeyHFsize, KeySData, KeyHData, KeySStack, KeyHStack,
		KeySCore, KeyHCore, KeySVmem, KeyHVmem, KeySRss, KeyHRss, KeySDescriptors, KeyHDescriptors, KeySMaxproc,
		KeyHMaxproc, KeySMemorylocked, KeyHMemorylocked, KeySLocks, KeyHLocks, KeyPriority, KeyProcessors, KeyBinding,
		KeyUseAFS, KeyCoshepherd, KeySetTokenCmd, KeyTokenExtend, KeyMailList, KeyMailOptions, KeyAccount,
		KeySubmissionTime, KeyAcctProject, KeyQrshControlPort, KeyRshDaemon, KeyRloginDaemon, KeyQloginDaemon,
		KeyQrshTmpdir, KeyQrshPIDFile, KeyQrshTaskID, KeyPETaskID, KeyMasterHost, KeyCommdPort, KeyCSP, KeyIgnoreFQDN,
		KeyDefaultDomain, KeyForbidReschedule, KeyForbidApperror, KeyInheritEnv, KeyQueue, KeyHost, KeyJobID, KeyTaskID,
		KeySGERoot, KeySGECell, KeyUsageCollection, KeyEnableSystemd, KeySystemdSlice, KeySystemdScope, KeyDevicesAllow,
		KeyBindingInstance, KeyBindingToUse, KeyBindingCPUSet, KeyReconnectTimeout, KeyTLS, KeyFormat, KeyUID, KeyGID,
		KeyGroups, KeyHome, KeyRun, KeyArgs, KeySRT, KeyHRT, KeyTrace, KeyEndSignal, KeyMigrates, KeyPrivateTmp, KeyScratchLimit,
		KeyScratchProject, KeyScratchTmpfs, KeySession, KeySessionGrace, KeySessionLost, KeySessionNotes, KeySessionDaemon, KeyCgroup, KeyCgroupFreezer,
		KeyCgroupMemory, KeyCgroupPids, KeyCgroupCPU, KeyCgroupCPUAcct, KeyCgroupDevices, KeyDevices, KeyVmem, KeyForeign, KeyForeignSRT,
		KeyForeignHRT:
		return true
	}
	if number, ok := strings.CutPrefix(key, KeyJobArg); ok {
		_, ok = decimal(number, 1<<32-1)
		return ok
	}
	limit, ok := strings.CutSuffix(key, KeyConsumableJob)
	return ok && (strings.HasPrefix(limit, "s_") || strings.HasPrefix(limit, "h_"))
}

// Unknown returns the keys of config that are not Known, in their order.
func (c *Config) Unknown() []string {
	var keys []string
	for i := range c.entries {
		if key := c.entries[i].Key; !Known(key) {
			keys = append(keys, key)
		}
	}
	return keys
}
