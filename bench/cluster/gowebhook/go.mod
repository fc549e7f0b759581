module spotgate.dev/bench/gowebhook

go 1.26
