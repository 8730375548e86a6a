package api

// VerbConfigure changes the configuration: ConfigureRequest -> ConfigureReply.
const VerbConfigure = "configure"

// MaxConfiguration bounds the text of a ConfigureRequest, in bytes, as execd
// bounds the files of its configuration.
const MaxConfiguration = 1 << 20

// KindAttribute is one attribute of the kind complex, with a parameter for each
// of its columns.
const KindAttribute = "attribute"

// KindKnob is the knobs of hooks.conf, which qconf shows and does not change.
const KindKnob = "knob"

// KindUser is the past usage of users, which can only be cleared.
const KindUser = "user"

// Configure is an action on an object of the configuration.
type Configure string

// The actions. Those on elements do not change what the text does not name.
const (
	ConfigureAdd     Configure = "add"     // the object in the text
	ConfigureModify  Configure = "modify"  // the same, for an object that exists
	ConfigureRemove  Configure = "remove"  // the object of that name
	ConfigureInsert  Configure = "insert"  // add elements to its lists
	ConfigureChange  Configure = "change"  // change elements of its lists, and what is no list
	ConfigureDelete  Configure = "delete"  // take elements off its lists
	ConfigureReplace Configure = "replace" // give parameters other values
	ConfigurePurge   Configure = "purge"   // forget what a queue has for one host: the text has the names, or *
	ConfigureAdmit   Configure = "admit"   // put the users of the text, one in a line, on a user list, which is made if it does not exist
	ConfigureExpel   Configure = "expel"   // take them off it
	ConfigureClear   Configure = "clear"   // forget what the users of the text have used, or all
)

// ConfigureRequest changes one object of the configuration.
type ConfigureRequest struct {
	Action Configure `json:"action"`
	Kind   string    `json:"kind"`           // as in ShowRequest, or KindAttribute
	Name   string    `json:"name,omitempty"` // for add and modify the text has it; for elements it may be queue@host or queue@@hostgroup
	Text   string    `json:"text,omitempty"` // in the format of the object's file
	// Was is the text that was edited, as VerbShow gave it: if the object has changed
	// since, the request is refused. Empty: the new text replaces whatever there is.
	Was string `json:"was,omitempty"`
	Dry bool   `json:"dry,omitempty"` // check, and say what would be done
}

// ConfigureReply tells what was done. With Problems nothing was.
type ConfigureReply struct {
	Lines    []Line    `json:"lines"`
	Problems []Problem `json:"problems,omitempty"`
	Changed  []string  `json:"changed,omitempty"` // what is in force now and was not before, one line each
}

// Problem is a mistake in the text of a ConfigureRequest, or in a file.
type Problem struct {
	File  string `json:"file,omitempty"` // empty: the text
	Line  int    `json:"line,omitempty"` // 0: no line in particular
	Text  string `json:"text"`
	Words bool   `json:"words,omitempty"` // Text is a message of Grid Engine, and is printed as it is
}
