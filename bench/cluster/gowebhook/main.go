// A minimal webhook: it parses the envelope of a review, answers /mutate with a fixed patch, and allows every other
// request. The patch is spotgate's patch for the Pod of bench/cluster.
package main

import (
	"crypto/tls"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"time"
)

const patch = `[{"op":"add","path":"/spec/terminationGracePeriodSeconds","value":60},` +
	`{"op":"add","path":"/spec/containers/0/lifecycle","value":{"preStop":{"sleep":{"seconds":5}}}},` +
	`{"op":"add","path":"/spec/containers/1/lifecycle","value":{"preStop":{"sleep":{"seconds":5}}}},` +
	`{"op":"add","path":"/spec/tolerations/-",` +
	`"value":{"key":"example.com/spot","operator":"Equal","value":"true","effect":"NoSchedule"}},` +
	`{"op":"add","path":"/spec/tolerations/-",` +
	`"value":{"key":"qos.coreweave.cloud/interruptable","operator":"Equal","value":"true","effect":"NoExecute"}},` +
	`{"op":"add","path":"/spec/nodeSelector","value":{"compute.coreweave.com/node-pool":"cpu-spot"}}]`

// maxBody is the size of a review with two objects of 3 MiB, the largest that the API server accepts.
const maxBody = 7 << 20

type review struct {
	APIVersion string    `json:"apiVersion"`
	Kind       string    `json:"kind"`
	Request    *request  `json:"request,omitempty"`
	Response   *response `json:"response,omitempty"`
}

type request struct {
	UID    string          `json:"uid"`
	Object json.RawMessage `json:"object"`
}

type response struct {
	UID       string `json:"uid"`
	Allowed   bool   `json:"allowed"`
	PatchType string `json:"patchType,omitempty"`
	Patch     []byte `json:"patch,omitempty"`
}

// answer returns a handler that allows each request; fill adds to the response.
func answer(fill func(*response)) http.HandlerFunc {
	return func(writer http.ResponseWriter, incoming *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(writer, incoming.Body, maxBody))
		if err != nil {
			http.Error(writer, err.Error(), http.StatusBadRequest)
			return
		}
		var received review
		if err := json.Unmarshal(body, &received); err != nil || received.Request == nil {
			http.Error(writer, "no AdmissionReview", http.StatusBadRequest)
			return
		}
		result := &response{UID: received.Request.UID, Allowed: true}
		fill(result)
		reply, err := json.Marshal(review{APIVersion: received.APIVersion, Kind: received.Kind, Response: result})
		if err != nil {
			http.Error(writer, err.Error(), http.StatusInternalServerError)
			return
		}
		writer.Header().Set("Content-Type", "application/json")
		writer.Write(reply)
	}
}

func main() {
	certificate := flag.String("tls-cert", "", "file of the certificate")
	key := flag.String("tls-key", "", "file of its key")
	flag.Parse()
	pair, err := tls.LoadX509KeyPair(*certificate, *key)
	if err != nil {
		log.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	http.HandleFunc("POST /mutate", answer(func(result *response) {
		result.PatchType, result.Patch = "JSONPatch", []byte(patch)
	}))
	http.HandleFunc("POST /validate", answer(func(*response) {}))
	server := &http.Server{
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       180 * time.Second,
		TLSConfig:         &tls.Config{Certificates: []tls.Certificate{pair}},
	}
	fmt.Println(listener.Addr().(*net.TCPAddr).Port)
	log.Fatal(server.ServeTLS(listener, "", ""))
}
