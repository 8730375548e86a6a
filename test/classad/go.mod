module paddock/test/classad

go 1.26.0

require (
	github.com/PelicanPlatform/classad v0.1.0
	paddock v0.0.0
)

replace paddock => ../..
