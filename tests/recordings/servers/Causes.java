import java.io.DataInputStream;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.util.concurrent.Executors;
import java.util.concurrent.Semaphore;

/** A server whose answers wait for a cause that is known: as causes.c. */
public class Causes {
  static final int HELD = 200;
  static final Object LOCK = new Object();
  static volatile long sink;

  static void crunchNumbers() {
    long until = System.nanoTime() + HELD * 1_000_000L;
    while (System.nanoTime() < until) {
      for (int i = 0; i < 100000; i++) {
        sink = sink * 3 + i;
      }
    }
  }

  static void forMonitor() throws Exception {
    Semaphore held = new Semaphore(0);
    Thread holder = new Thread(() -> {
      synchronized (LOCK) {
        held.release();
        try {
          Thread.sleep(HELD);
        } catch (InterruptedException e) {
          throw new RuntimeException(e);
        }
      }
    }, "holder");
    holder.start();
    held.acquire();
    synchronized (LOCK) {
      sink++;
    }
  }

  static void forPool() throws Exception {
    var pool = Executors.newSingleThreadExecutor();
    pool.submit(Causes::crunchNumbers).get();
    pool.shutdown();
  }

  static void waitFor(String cause) throws Exception {
    switch (cause) {
      case "rest": Thread.sleep(HELD); break;
      case "work": crunchNumbers(); break;
      case "monitor": forMonitor(); break;
      case "pool": forPool(); break;
      case "program": new ProcessBuilder("sleep", "0.2").start().waitFor(); break;
      default: throw new IllegalArgumentException(cause);
    }
  }

  public static void main(String[] words) throws Exception {
    var listener = new ServerSocket(0, 1, InetAddress.getLoopbackAddress());
    System.out.println(listener.getLocalPort());
    Socket connection = listener.accept();
    var requests = new DataInputStream(connection.getInputStream());
    byte[] bytes = new byte[100];
    for (int left = Integer.parseInt(words[1]); left > 0; left--) {
      requests.readFully(bytes);
      waitFor(words[0]);
      connection.getOutputStream().write(bytes, 0, 50);
    }
  }
}
