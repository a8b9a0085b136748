// A server whose answers wait for a cause that is known: as causes.c.
package main

import (
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"time"
)

const held = 200 * time.Millisecond

var (
	sink  uint64
	mutex sync.Mutex
)

//go:noinline
func crunchNumbers() {
	for until := time.Now().Add(held); time.Now().Before(until); {
		for i := uint64(0); i < 1000000; i++ {
			sink = sink*3 + i
		}
	}
}

func forMutex() {
	locked := make(chan bool)
	go func() {
		mutex.Lock()
		locked <- true
		time.Sleep(held)
		mutex.Unlock()
	}()
	<-locked
	mutex.Lock()
	mutex.Unlock()
}

func forGoroutine() {
	done := make(chan bool)
	go func() {
		crunchNumbers()
		done <- true
	}()
	<-done
}

var causes = map[string]func(){
	"rest":      func() { time.Sleep(held) },
	"work":      crunchNumbers,
	"mutex":     forMutex,
	"goroutine": forGoroutine,
	"program":   func() { exec.Command("sleep", "0.2").Run() },
}

func main() {
	rounds, _ := strconv.Atoi(os.Args[2])
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	fmt.Println(listener.Addr().(*net.TCPAddr).Port)
	connection, _ := listener.Accept()
	bytes := make([]byte, 100)
	for ; rounds > 0; rounds-- {
		io.ReadFull(connection, bytes)
		causes[os.Args[1]]()
		connection.Write(bytes[:50])
	}
}
