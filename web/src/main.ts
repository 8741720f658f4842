import { mount } from "svelte";
import App from "./App.svelte";
import "./app.css";

const target = document.getElementById("app");
if (target) {
  target.replaceChildren(); // what stands there until this script runs
  mount(App, { target });
}
